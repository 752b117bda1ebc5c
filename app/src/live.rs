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
    loaded: RwSignal<u64>,
}

impl Default for Live {
    fn default() -> Self {
        Self { ticks: RwSignal::new(0), state: RwSignal::new(LiveState::Off), loaded: RwSignal::new(0) }
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

    /// Changes that were loaded when the stream came back after it was lost; 0 until then.
    pub fn loaded(self) -> u64 {
        self.loaded.get()
    }

    /// Follows the stream at `path` for as long as the calling component lives, or until that leads elsewhere; none is no stream.
    pub fn watch(self, path: impl Fn() -> Option<String> + 'static) {
        #[cfg(feature = "hydrate")]
        Effect::new(move |_| {
            if let Some(path) = path() {
                browser::watch(self, path);
            }
        });
        #[cfg(not(feature = "hydrate"))]
        drop(path);
    }
}

/// The live updates of this tab.
pub fn use_live() -> Live {
    use_context::<Live>().unwrap_or_default()
}

/// Milliseconds before try `failures` (from 1): doubled from 1 s to at most 30 s.
pub(crate) fn back_off_millis(failures: u32) -> u64 {
    (1000_u64 << failures.saturating_sub(1).min(5)).min(30_000)
}

/// Where an event lies in its stream, from its id: `generation.n`, or a time alone. Later ones compare as greater.
#[cfg(any(feature = "hydrate", test))]
fn position(id: &str) -> Option<(i64, i64)> {
    let (first, second) = id.split_once('.').unwrap_or((id, "0"));
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// What was heard of a stream, so that one that comes back goes on where the last one ended.
#[cfg(any(feature = "hydrate", test))]
#[derive(Debug, Default)]
struct Heard {
    last: Option<(String, (i64, i64))>,
    /// Changes since the stream came back; none while it was not lost.
    missed: Option<u64>,
}

#[cfg(any(feature = "hydrate", test))]
impl Heard {
    /// The address that the next stream is opened at.
    fn address(&self, path: &str) -> String {
        match &self.last {
            Some((id, _)) => format!("{path}?last_event_id={}", crate::paths::encode(id)),
            None => path.to_owned(),
        }
    }

    /// An event arrived. The server may repeat what it is not sure was heard; that is no change.
    fn event(&mut self, id: &str) {
        let Some(at) = position(id) else { return };
        if self.last.as_ref().is_some_and(|(_, last)| at <= *last) {
            return;
        }
        if let Some(missed) = self.missed.as_mut() {
            *missed += 1;
        }
        self.last = Some((id.to_owned(), at));
    }

    fn lost(&mut self) {
        self.missed = self.last.is_some().then_some(0);
    }

    /// Changes since the stream came back, while they are still those that were missed.
    fn missed(&self) -> Option<u64> {
        self.missed.filter(|missed| *missed > 0)
    }

    /// From now on changes are news.
    fn caught_up(&mut self) {
        self.missed = None;
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use std::{cell::RefCell, rc::Rc, time::Duration};

    use leptos::{leptos_dom::helpers::TimeoutHandle, prelude::*};
    use send_wrapper::SendWrapper;
    use wasm_bindgen::{JsCast, closure::Closure};
    use web_sys::{Event, EventSource, MessageEvent};

    use super::{Heard, Live, LiveState, back_off_millis};

    /// The kinds of events of the stream (api.md).
    const KINDS: [&str; 9] =
        ["job", "attempt", "launch", "incident", "decision", "progress", "event", "reset", "deleted"];
    /// Events within this time are answered by one reading.
    const GATHER: Duration = Duration::from_millis(250);
    /// What comes within this time after a stream has come back was missed before: the server tells it at once, in its own time.
    const CATCH_UP: Duration = Duration::from_secs(5);
    /// A tab that is hidden for so long gives its connection back.
    const HIDDEN: Duration = Duration::from_secs(60);

    /// Which timer of a feed.
    #[derive(Clone, Copy)]
    enum Slot {
        Gather,
        CatchUp,
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
        heard: RefCell<Heard>,
        stream: RefCell<Option<Stream>>,
        gathering: RefCell<Option<TimeoutHandle>>,
        catching_up: RefCell<Option<TimeoutHandle>>,
        retry: RefCell<Option<TimeoutHandle>>,
        hiding: RefCell<Option<TimeoutHandle>>,
        failures: RefCell<u32>,
        stopped: RefCell<bool>,
    }

    pub(super) fn watch(live: Live, path: String) {
        let feed = Rc::new(Feed {
            live,
            path,
            heard: RefCell::default(),
            stream: RefCell::default(),
            gathering: RefCell::default(),
            catching_up: RefCell::default(),
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
            let Ok(source) = EventSource::new(&self.heard.borrow().address(&self.path)) else {
                self.lost();
                return;
            };
            let heard = self.closure(|feed, event| {
                if let Some(message) = event.dyn_ref::<MessageEvent>() {
                    feed.heard.borrow_mut().event(&message.last_event_id());
                }
                feed.gather();
            });
            let opened = self.closure(|feed, _| {
                *feed.failures.borrow_mut() = 0;
                feed.live.state.set(LiveState::Live);
                feed.later(Slot::CatchUp, CATCH_UP, |feed| feed.heard.borrow_mut().caught_up());
                // Whatever happened between the page's reading and now is read again.
                feed.gather();
            });
            let failed = self.closure(|feed, _| feed.lost());
            for kind in KINDS {
                // Only fails on a malformed listener, which a closure never is.
                let _ = source.add_event_listener_with_callback(kind, heard.as_ref().unchecked_ref());
            }
            source.set_onopen(Some(opened.as_ref().unchecked_ref()));
            source.set_onerror(Some(failed.as_ref().unchecked_ref()));
            *self.stream.borrow_mut() =
                Some(Stream { source, _heard: heard, _opened: opened, _failed: failed });
        }

        fn closure(self: &Rc<Self>, act: impl Fn(&Rc<Self>, &Event) + 'static) -> Closure<dyn FnMut(Event)> {
            let feed = Rc::downgrade(self);
            Closure::new(move |event| {
                if let Some(feed) = feed.upgrade().filter(|feed| !*feed.stopped.borrow()) {
                    act(&feed, &event);
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
                Slot::CatchUp => &self.catching_up,
                Slot::Retry => &self.retry,
                Slot::Hide => &self.hiding,
            }
        }

        /// The first event starts the wait and later ones join it, so a busy job cannot put the reading off for ever.
        fn gather(self: &Rc<Self>) {
            if self.gathering.borrow().is_none() {
                self.later(Slot::Gather, GATHER, |feed| {
                    if let Some(missed) = feed.heard.borrow().missed() {
                        feed.live.loaded.set(missed);
                    }
                    feed.live.ticks.update(|ticks| *ticks += 1);
                });
            }
        }

        fn lost(self: &Rc<Self>) {
            self.pause();
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

        fn pause(&self) {
            cancel(&self.catching_up);
            self.heard.borrow_mut().lost();
            self.live.loaded.set(0);
            self.live.state.set(LiveState::Paused);
        }

        fn visibility_changed(self: &Rc<Self>) {
            if document().hidden() {
                self.later(Slot::Hide, HIDDEN, |feed| {
                    cancel(&feed.retry);
                    feed.stream.borrow_mut().take();
                    feed.pause();
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
            for timer in [&self.gathering, &self.catching_up, &self.retry, &self.hiding] {
                cancel(timer);
            }
            self.stream.borrow_mut().take();
            self.live.loaded.set(0);
            self.live.state.set(LiveState::Off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Heard, back_off_millis};

    #[test]
    fn a_stream_that_comes_back_goes_on_and_counts_each_missed_change_once() {
        let mut heard = Heard::default();
        assert_eq!(heard.address("/s"), "/s");
        heard.event("3.9");
        assert_eq!((heard.address("/s").as_str(), heard.missed()), ("/s?last_event_id=3.9", None));
        heard.lost();
        assert_eq!(heard.missed(), None, "the server has not told anything yet");
        // The first is a repeat; 3.10 comes after 3.9 and a time after an earlier one.
        for id in ["3.9", "3.10", "4.1", "", "nonsense"] {
            heard.event(id);
        }
        assert_eq!(heard.missed(), Some(2));
        heard.event("4.2");
        assert_eq!(heard.missed(), Some(3), "told a little later");
        heard.caught_up();
        heard.event("4.3");
        assert_eq!(heard.missed(), None, "this one is new");
        assert_eq!(heard.address("/s"), "/s?last_event_id=4.3");
    }

    #[test]
    fn nothing_is_missed_before_anything_was_heard() {
        let mut heard = Heard::default();
        heard.lost();
        heard.event("1795939200000000");
        assert_eq!(heard.missed(), None);
    }

    #[test]
    fn tries_grow_apart_up_to_half_a_minute() {
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 99].map(back_off_millis),
            [1000, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
        );
    }
}
