//! Live updates: one event stream a tab. An event only says that something changed; the page then reads again what it
//! shows, so a lost or repeated event can never leave it wrong.

use leptos::prelude::*;

/// Whether the page follows the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveState {
    /// No stream: no script, or the page has none.
    Off,
    /// Changes arrive.
    Live,
    /// The stream was lost and is tried again.
    Paused,
}

/// The stream of this tab.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    ticks: RwSignal<u64>,
    state: RwSignal<LiveState>,
}

impl Default for Live {
    fn default() -> Self {
        Self { ticks: RwSignal::new(0), state: RwSignal::new(LiveState::Off) }
    }
}

impl Live {
    /// Whether the page follows the world; reading it follows it.
    pub fn state(self) -> LiveState {
        self.state.get()
    }

    /// Goes up when something changed. Make it part of a resource's source and the resource is read again.
    pub fn ticks(self) -> u64 {
        self.ticks.get()
    }

    /// Follows the stream at `path` for as long as the calling component lives.
    pub fn watch(self, path: String) {
        #[cfg(feature = "hydrate")]
        Effect::new(move |_| browser::watch(self, path.clone()));
        #[cfg(not(feature = "hydrate"))]
        drop(path);
    }
}

/// The live updates of this tab.
pub fn use_live() -> Live {
    use_context::<Live>().unwrap_or_default()
}

/// Milliseconds before try `failures` (from 1): doubled from 1 s to at most 30 s.
#[cfg(any(feature = "hydrate", test))]
fn back_off_millis(failures: u32) -> u64 {
    (1000_u64 << failures.saturating_sub(1).min(5)).min(30_000)
}

#[cfg(feature = "hydrate")]
mod browser {
    use std::{cell::RefCell, rc::Rc, time::Duration};

    use leptos::{leptos_dom::helpers::TimeoutHandle, prelude::*};
    use send_wrapper::SendWrapper;
    use wasm_bindgen::{JsCast, closure::Closure};
    use web_sys::{Event, EventSource};

    use super::{Live, LiveState, back_off_millis};

    /// The kinds of events of the stream (api.md).
    const KINDS: [&str; 7] = ["job", "attempt", "launch", "incident", "decision", "progress", "event"];
    /// Events within this time are answered by one reading.
    const GATHER: Duration = Duration::from_millis(250);
    /// A tab that is hidden for so long gives its connection back.
    const HIDDEN: Duration = Duration::from_secs(60);

    /// Which timer of a feed.
    #[derive(Clone, Copy)]
    enum Slot {
        Gather,
        Retry,
        Hide,
    }

    struct Stream {
        source: EventSource,
        _heard: Closure<dyn FnMut(Event)>,
        _opened: Closure<dyn FnMut(Event)>,
        _failed: Closure<dyn FnMut(Event)>,
    }

    impl Drop for Stream {
        fn drop(&mut self) {
            self.source.close();
        }
    }

    /// One page's stream with its timers. Nothing runs on after `stop`.
    struct Feed {
        live: Live,
        path: String,
        stream: RefCell<Option<Stream>>,
        gathering: RefCell<Option<TimeoutHandle>>,
        retry: RefCell<Option<TimeoutHandle>>,
        hiding: RefCell<Option<TimeoutHandle>>,
        failures: RefCell<u32>,
        stopped: RefCell<bool>,
    }

    pub(super) fn watch(live: Live, path: String) {
        let feed = Rc::new(Feed {
            live,
            path,
            stream: RefCell::default(),
            gathering: RefCell::default(),
            retry: RefCell::default(),
            hiding: RefCell::default(),
            failures: RefCell::default(),
            stopped: RefCell::default(),
        });
        feed.open();
        let visibility = {
            let feed = SendWrapper::new(feed.clone());
            window_event_listener_untyped("visibilitychange", move |_| feed.visibility_changed())
        };
        let feed = SendWrapper::new(feed);
        on_cleanup(move || {
            visibility.remove();
            feed.stop();
        });
    }

    fn cancel(timer: &RefCell<Option<TimeoutHandle>>) {
        if let Some(handle) = timer.borrow_mut().take() {
            handle.clear();
        }
    }

    impl Feed {
        fn open(self: &Rc<Self>) {
            cancel(&self.retry);
            if *self.stopped.borrow() || self.stream.borrow().is_some() {
                return;
            }
            let Ok(source) = EventSource::new(&self.path) else {
                self.lost();
                return;
            };
            let heard = self.closure(|feed| feed.gather());
            let opened = self.closure(|feed| {
                *feed.failures.borrow_mut() = 0;
                feed.live.state.set(LiveState::Live);
                // Whatever happened between the page's reading and now is read again.
                feed.gather();
            });
            let failed = self.closure(Self::lost);
            for kind in KINDS {
                // Only fails on a malformed listener, which a closure never is.
                let _ = source.add_event_listener_with_callback(kind, heard.as_ref().unchecked_ref());
            }
            source.set_onopen(Some(opened.as_ref().unchecked_ref()));
            source.set_onerror(Some(failed.as_ref().unchecked_ref()));
            *self.stream.borrow_mut() =
                Some(Stream { source, _heard: heard, _opened: opened, _failed: failed });
        }

        fn closure(self: &Rc<Self>, act: impl Fn(&Rc<Self>) + 'static) -> Closure<dyn FnMut(Event)> {
            let feed = Rc::downgrade(self);
            Closure::new(move |_| {
                if let Some(feed) = feed.upgrade().filter(|feed| !*feed.stopped.borrow()) {
                    act(&feed);
                }
            })
        }

        /// Runs `act` after a while, unless the page is left or `slot` is set anew before.
        fn later(self: &Rc<Self>, slot: Slot, after: Duration, act: fn(&Rc<Self>)) {
            let feed = Rc::downgrade(self);
            let run = move || {
                if let Some(feed) = feed.upgrade().filter(|feed| !*feed.stopped.borrow()) {
                    feed.timer(slot).borrow_mut().take();
                    act(&feed);
                }
            };
            cancel(self.timer(slot));
            *self.timer(slot).borrow_mut() = set_timeout_with_handle(run, after).ok();
        }

        fn timer(&self, slot: Slot) -> &RefCell<Option<TimeoutHandle>> {
            match slot {
                Slot::Gather => &self.gathering,
                Slot::Retry => &self.retry,
                Slot::Hide => &self.hiding,
            }
        }

        /// The first event starts the wait and later ones join it, so a busy job cannot put the reading off for ever.
        fn gather(self: &Rc<Self>) {
            if self.gathering.borrow().is_none() {
                self.later(Slot::Gather, GATHER, |feed| feed.live.ticks.update(|ticks| *ticks += 1));
            }
        }

        fn lost(self: &Rc<Self>) {
            self.live.state.set(LiveState::Paused);
            *self.failures.borrow_mut() += 1;
            let wait = Duration::from_millis(back_off_millis(*self.failures.borrow()));
            // The stream is dropped by the timer and not here: this may run inside one of its own closures.
            if let Some(stream) = self.stream.borrow().as_ref() {
                stream.source.close();
            }
            self.later(Slot::Retry, wait, |feed| {
                feed.stream.borrow_mut().take();
                feed.open();
            });
        }

        fn visibility_changed(self: &Rc<Self>) {
            if document().hidden() {
                self.later(Slot::Hide, HIDDEN, |feed| {
                    cancel(&feed.retry);
                    feed.stream.borrow_mut().take();
                    feed.live.state.set(LiveState::Paused);
                });
            } else {
                cancel(&self.hiding);
                if self.retry.borrow().is_none() {
                    self.open();
                }
            }
        }

        fn stop(&self) {
            *self.stopped.borrow_mut() = true;
            for timer in [&self.gathering, &self.retry, &self.hiding] {
                cancel(timer);
            }
            self.stream.borrow_mut().take();
            self.live.state.set(LiveState::Off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::back_off_millis;

    #[test]
    fn tries_grow_apart_up_to_half_a_minute() {
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 99].map(back_off_millis),
            [1000, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        );
    }
}
