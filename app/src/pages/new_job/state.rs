//! The state of the form in the browser. The texts are the browser's own; this hears of them, so that nothing typed
//! before hydration is lost and the page works the same without script.

use std::collections::BTreeSet;

use engine::{
    hang::QuietPhase,
    job::{ClusterKind, FieldError, Finding, JobDraft, JobSpec, Mode, Site, SiteCluster},
};
use leptos::{ev, html, prelude::*};

#[cfg(feature = "hydrate")]
use crate::server_fns::new_job::{check_job, read_manifest};
use crate::{
    components::field::Bound,
    forms::{
        new_job::{checked, error_of, sentence},
        pasted, pods,
        switches::{self, Moved},
        typed::{Typed, field_of, label, name},
    },
    server_fns::new_job::NewJobStart,
};

/// A switch that moved by itself, and the form before it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shift {
    /// What moved.
    pub moved: Moved,
    before: Typed,
}

/// What the cluster was asked about the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Asked {
    /// Nothing yet.
    #[default]
    Nothing,
    /// The answer is on its way.
    Waiting,
    /// It said this about this job.
    Told(Box<JobDraft>, Vec<Finding>),
    /// There is no answer.
    Failed(String),
}

/// How Review shows the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// In words.
    #[default]
    Form,
    /// The body as YAML.
    Yaml,
    /// The body as JSON.
    Json,
    /// The command that creates it.
    Curl,
}

impl Shown {
    /// All views with the words of their buttons and their values in the form.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Form, "Form", "form"),
        (Self::Yaml, "YAML", "yaml"),
        (Self::Json, "JSON", "json"),
        (Self::Curl, "curl", "curl"),
    ];

    fn read(text: &str) -> Self {
        Self::ALL.into_iter().find(|(_, _, value)| *value == text).map_or(Self::Form, |(shown, _, _)| shown)
    }
}

/// The form's state. Copies share it.
#[derive(Clone, Copy)]
pub struct FormState {
    /// What is typed now.
    pub typed: RwSignal<Typed>,
    /// The site's clusters, policies and values.
    pub site: StoredValue<Site>,
    /// The body of the original, for a copy.
    pub original: StoredValue<Option<JobDraft>>,
    /// The longest stretch without progress that the original came through.
    pub longest_quiet: Option<QuietPhase>,
    /// What moved last.
    pub shift: RwSignal<Option<Shift>>,
    /// How Review shows the job.
    pub shown: RwSignal<Shown>,
    /// What the cluster was asked.
    pub asked: RwSignal<Asked>,
    /// Where the focus goes when there are errors.
    pub summary_ref: NodeRef<html::Div>,
    /// What the rules say about what is typed now.
    found: Memo<Result<(JobDraft, JobSpec), Vec<FieldError>>>,
    /// What the server refused; an entry goes when its field changes.
    refused: RwSignal<Vec<FieldError>>,
    /// Fields that were left: only these are judged while the rest is still being filled in.
    left: RwSignal<BTreeSet<&'static str>>,
    /// The form was sent and refused here, so every field is judged.
    sent: RwSignal<bool>,
    /// The browser has taken over; before that it owns the switches too.
    ready: RwSignal<bool>,
}

impl FormState {
    /// The form with these texts.
    pub fn new(typed: Typed, start: &NewJobStart) -> Self {
        let shown = RwSignal::new(Shown::read(typed.get(name::SHOW)));
        let typed = RwSignal::new(typed);
        let site = StoredValue::new(start.site.clone());
        let errors = start.posted.as_ref().map(|posted| posted.errors.clone()).unwrap_or_default();
        let found = Memo::new(move |_| typed.with(|typed| site.with_value(|site| checked(typed, site))));
        let findings = start.posted.as_ref().and_then(|posted| posted.findings.clone());
        let draft = found.with_untracked(|found| found.as_ref().ok().map(|(draft, _)| draft.clone()));
        let asked = draft.zip(findings).map(|(draft, findings)| Asked::Told(Box::new(draft), findings));
        Self {
            typed,
            site,
            original: StoredValue::new(start.original.as_ref().map(|original| original.draft.clone())),
            longest_quiet: start.original.as_ref().and_then(|original| original.longest_quiet),
            shift: RwSignal::new(None),
            shown,
            asked: RwSignal::new(asked.unwrap_or_default()),
            summary_ref: NodeRef::new(),
            found,
            refused: RwSignal::new(errors),
            left: RwSignal::new(BTreeSet::new()),
            sent: RwSignal::new(false),
            ready: RwSignal::new(false),
        }
    }

    /// Reads what the person did before the scripts were there.
    pub fn take_over(self, form: NodeRef<html::Form>) {
        #[cfg(feature = "hydrate")]
        Effect::new(move |_| {
            if let Some(form) = form.get() {
                if let Some(mut typed) = browser::read(&form) {
                    switches::settle(&mut typed);
                    self.typed.with_untracked(|was| pasted::carry_over(was, &mut typed));
                    self.typed.set(typed);
                }
                self.ready.set(true);
            }
        });
        #[cfg(not(feature = "hydrate"))]
        let _ = (form, self.ready);
    }

    /// The job as it would be created, while no field needs a change.
    pub fn spec(self) -> Option<JobSpec> {
        self.found.with(|found| found.as_ref().ok().map(|(_, spec)| spec.clone()))
    }

    /// The body that would create the job, while no field needs a change.
    pub fn draft(self) -> Option<JobDraft> {
        self.found.with(|found| found.as_ref().ok().map(|(draft, _)| draft.clone()))
    }

    /// Asks the cluster about the job as it is now.
    pub fn ask(self) {
        let Some(draft) = self.found.with_untracked(|found| Some(found.as_ref().ok()?.0.clone())) else {
            return;
        };
        self.asked.set(Asked::Waiting);
        #[cfg(feature = "hydrate")]
        leptos::task::spawn_local(async move {
            let asked = match check_job(draft.clone()).await {
                Ok(findings) => Asked::Told(Box::new(draft), findings),
                Err(error) => Asked::Failed(error.to_string()),
            };
            // The page may be gone by now.
            let _ = self.asked.try_set(asked);
        });
        #[cfg(not(feature = "hydrate"))]
        drop(draft);
    }

    /// Whether this is the form of a manifest; it stays that.
    pub fn is_pasted(self) -> bool {
        self.typed.with_untracked(pasted::is_pasted)
    }

    /// All that is wrong at a field, whether it was left or not.
    pub fn errors_at(self, field: &'static str) -> Vec<FieldError> {
        let errors = self.found.with(|found| found.as_ref().err().cloned().unwrap_or_default());
        errors.into_iter().filter(|error| field_of(&error.field) == field).collect()
    }

    /// Has the server read the manifest and shows what is wrong with it.
    pub fn check_manifest(self) {
        self.note_left(name::MANIFEST);
    }

    /// Asks the server what the manifest says, unless that is known.
    fn read_manifest(self) {
        let text = self
            .typed
            .with_untracked(|typed| (!pasted::is_read(typed)).then(|| typed.get(name::MANIFEST).to_owned()));
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return };
        #[cfg(feature = "hydrate")]
        leptos::task::spawn_local(async move {
            // Where the server does not answer, it reads the text when the form is sent.
            if let Ok(read) = read_manifest(text.clone()).await {
                self.typed.try_update(|typed| {
                    if typed.get(name::MANIFEST) == text {
                        pasted::keep(typed, |_| read);
                    }
                });
            }
        });
        #[cfg(not(feature = "hydrate"))]
        let _ = text;
    }

    /// The chosen cluster.
    pub fn cluster(self) -> Option<SiteCluster> {
        self.typed.with(|typed| self.site.with_value(|site| pods::cluster(typed, site).cloned()))
    }

    /// Whether the site has a cluster of this kind.
    pub fn has_cluster(self, kind: ClusterKind) -> bool {
        self.site.with_value(|site| site.has(kind))
    }

    /// Whether the chosen cluster is one of Kubernetes.
    pub fn on_kubernetes(self) -> bool {
        self.typed.with(|typed| self.site.with_value(|site| pods::on_kubernetes(typed, site)))
    }

    /// A text as it was at first; later ones are the browser's.
    pub fn first(self, field: &str) -> String {
        self.typed.with_untracked(|typed| typed.get(field).to_owned())
    }

    /// What a text field is bound to.
    pub fn bound(self, field: &'static str) -> Bound {
        Bound {
            name: field,
            label: label(field),
            value: self.first(field),
            error: self.error(field),
            changed: self.changed(field),
            left: self.left(field),
        }
    }

    /// The error to show at a field.
    pub fn error(self, field: &'static str) -> Signal<Option<String>> {
        Signal::derive(move || {
            let judged = self.sent.get() || self.left.with(|left| left.contains(field));
            let own = self.found.with(|found| {
                let error = error_of(found.as_ref().err()?, field)?;
                // The server is being asked.
                (!pasted::only_unread(std::slice::from_ref(error))).then(|| sentence(error))
            });
            let refused = self.refused.with(|refused| error_of(refused, field).map(sentence));
            if judged { own.or(refused) } else { refused }
        })
    }

    /// The errors of the summary.
    pub fn summary(self) -> Vec<FieldError> {
        if self.sent.get() {
            self.found.with(|found| found.as_ref().err().cloned().unwrap_or_default())
        } else {
            self.refused.get()
        }
    }

    /// Hears of a change.
    pub fn changed(self, field: &'static str) -> Callback<String> {
        Callback::new(move |text: String| {
            self.typed.update(|typed| {
                typed.set(field, text);
                if field == name::MANIFEST {
                    pasted::forget(typed);
                }
            });
            self.refused.update(|refused| refused.retain(|error| field_of(&error.field) != field));
        })
    }

    /// Hears that a field was left.
    pub fn left(self, field: &'static str) -> Callback<()> {
        Callback::new(move |()| self.note_left(field))
    }

    fn note_left(self, field: &'static str) {
        self.left.update(|left| {
            left.insert(field);
        });
        if field == name::MANIFEST {
            self.read_manifest();
        }
    }

    /// A person turned a switch.
    pub fn turn(self, switch: &'static str, on: bool) {
        let before = self.typed.get_untracked();
        let mut typed = before.clone();
        let moved = switches::turn(&mut typed, switch, on);
        self.typed.set(typed);
        self.shift.set(moved.map(|moved| Shift { moved, before }));
        self.refused.update(|refused| refused.retain(|error| error.field != switch));
    }

    /// A person chose a mode card.
    pub fn choose(self, mode: Mode) {
        self.typed.update(|typed| switches::choose(typed, mode));
        self.shift.set(None);
    }

    /// A person took back what moved, and with it what made it move.
    pub fn undo(self) {
        if let Some(shift) = self.shift.get_untracked() {
            self.typed.update(|typed| {
                for switch in [name::FAILOVER, name::POLICY, name::HANG] {
                    typed.turn(switch, shift.before.is_on(switch));
                }
            });
            self.shift.set(None);
        }
    }

    /// Whether a switch shows as on. None leaves the browser's own state alone.
    pub fn shows_on(self, switch: &'static str) -> Option<bool> {
        self.ready.get().then(|| self.typed.with(|typed| switches::sent(typed, switch)))
    }

    /// Whether a mode's card shows as chosen. None leaves the browser's own state alone.
    pub fn shows_mode(self, mode: Mode) -> Option<bool> {
        self.ready.get().then(|| self.typed.with(|typed| switches::mode(typed) == mode))
    }

    /// Keeps a form with errors from being sent, and takes the person to the list of them.
    pub fn submit(self, event: &ev::SubmitEvent) {
        let refused =
            |found: &Result<_, Vec<_>>| found.as_ref().is_err_and(|errors| !pasted::only_unread(errors));
        if self.found.with_untracked(refused) {
            event.prevent_default();
            self.sent.set(true);
            #[cfg(feature = "hydrate")]
            if let Some(summary) = self.summary_ref.get_untracked() {
                // The list is drawn in the same turn; a browser that cannot focus still shows it.
                let _ = summary.focus();
            }
        }
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use web_sys::{FormData, HtmlFormElement};

    use crate::forms::{
        switches::{KEPT, RENDERED, SWITCHES, WAS},
        typed::{LABELS, Typed, name},
    };

    /// The fields as the browser would post them now.
    pub(super) fn read(form: &HtmlFormElement) -> Option<Typed> {
        let data = FormData::new_with_form(form).ok()?;
        let names = LABELS
            .iter()
            .map(|(field, _)| (*field).to_owned())
            .chain([name::MODE.to_owned()])
            .chain(RENDERED.map(|field| format!("{WAS}{field}")))
            .chain(SWITCHES.map(|field| format!("{KEPT}{field}")));
        Some(Typed::new(
            names.filter_map(|field| Some((field.clone(), data.get(&field).as_string()?))).collect(),
        ))
    }
}
