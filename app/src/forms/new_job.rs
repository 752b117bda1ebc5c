//! The create form: from what was typed to a draft, or to the fields that need a change. The rules are the engine's;
//! this adds only what typing adds: texts that are no numbers, commands with an open quote, lines that are no variable.

use std::collections::{BTreeMap, BTreeSet};

use engine::job::{
    FaultToleranceDraft, FieldError, Finding, Fit, HEALTH_CHECKS, JobDraft, JobKind, JobSpec, Site, limits,
};

use super::{
    lines, numbers, pasted, pods,
    switches::{self, sent},
    typed::{Typed, field_of, label, name},
};
use crate::{console::Posted, format};

/// The view of a form that was only sent to be checked.
pub const CHECK: &str = "check";

/// The view of a form that was sent to ask the cluster about the job.
pub const ASK: &str = "ask";

/// What the server does with a post.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Create this job. The service checks it again and may still refuse it: then see [`refused`].
    Create(Box<JobDraft>),
    /// Show the form again, with the status of [`status`].
    ShowAgain(Posted),
}

/// Reads a post of the form.
pub fn answer(fields: Vec<(String, String)>, site: &Site) -> Answer {
    let mut typed = Typed::new(fields);
    let held_back = pods::held_back(&typed, site);
    let mut moved = switches::settle(&mut typed);
    moved.extend(held_back);
    match typed.text(name::SHOW) {
        None => {}
        Some(CHECK | ASK) => {
            let errors = check(&typed, site).err().unwrap_or_default();
            return Answer::ShowAgain(shown_again(typed, errors, moved));
        }
        // Somebody who only looks is not told yet what is missing.
        Some(_) => {
            return Answer::ShowAgain(shown_again(typed, Vec::new(), moved));
        }
    }
    match check(&typed, site) {
        Ok(draft) if moved.is_empty() => Answer::Create(Box::new(draft)),
        Ok(_) => Answer::ShowAgain(shown_again(typed, Vec::new(), moved)),
        Err(errors) => Answer::ShowAgain(shown_again(typed, errors, moved)),
    }
}

fn shown_again(typed: Typed, errors: Vec<FieldError>, moved: Vec<String>) -> Posted {
    Posted { fields: typed.into_fields(), errors, moved, findings: None }
}

/// The job that the cluster is to be asked about, by a form that is shown again for that and has no errors.
pub fn asked_about(posted: &Posted, site: &Site) -> Option<JobDraft> {
    let typed = Typed::new(posted.fields.clone());
    let asks = typed.text(name::SHOW) == Some(ASK);
    if asks { check(&typed, site).ok() } else { None }
}

/// The status of a form that is shown again: 422, unless only another view of it was asked for.
pub fn status(posted: &Posted) -> u16 {
    let looks = posted.errors.is_empty() && posted.fields.iter().any(|(field, _)| field == name::SHOW);
    if looks { 200 } else { 422 }
}

/// A post that the service refused with these errors.
pub fn refused(fields: Vec<(String, String)>, errors: Vec<FieldError>, site: &Site) -> Posted {
    let mut typed = Typed::new(fields);
    let moved = switches::settle(&mut typed);
    let pods = pods::read(&pods::as_sent(&typed, site));
    let errors = errors.into_iter().map(|error| pods.at_line(error)).collect();
    shown_again(typed, errors, moved)
}

/// What the cluster said about the job of a form, as a sentence.
pub fn said(finding: &Finding, typed: &Typed, site: &Site) -> String {
    match &finding.field {
        Some(field) if finding.fit == Fit::Never => {
            let error = FieldError::new(field.clone(), finding.text.clone());
            let error = pods::read(&pods::as_sent(typed, site)).at_line(error);
            let (words, named) = (sentence(&error), label(field_of(&error.field)));
            if words.starts_with(named) { words } else { format!("{named}: {words}") }
        }
        _ => finding.text.clone(),
    }
}

/// The draft, if every rule holds.
///
/// # Errors
/// Every field that needs a change, once each.
pub fn check(typed: &Typed, site: &Site) -> Result<JobDraft, Vec<FieldError>> {
    checked(typed, site).map(|(draft, _)| draft)
}

/// The draft and the job it makes.
///
/// # Errors
/// As [`check`].
pub fn checked(typed: &Typed, site: &Site) -> Result<(JobDraft, JobSpec), Vec<FieldError>> {
    let (draft, mut errors, pods) = read(typed, site);
    let unread: BTreeSet<String> = errors.iter().map(|error| error.field.clone()).collect();
    match draft.validate(site) {
        Ok(spec) if errors.is_empty() => return Ok((draft, spec)),
        Ok(_) => {}
        // What could not be read was not checked either; its own error says more.
        Err(found) => {
            let is_here =
                |error: &FieldError| draft.kubernetes.manifest.is_some() || pasted::has_field(error);
            let told = found
                .into_iter()
                .filter(|error| !unread.contains(&error.field))
                .filter(|error| !pasted::is_pasted(typed) || is_here(error));
            errors.extend(told.map(|error| pods.at_line(error)));
        }
    }
    let mut seen = BTreeSet::new();
    errors.retain(|error| seen.insert(error.field.clone()));
    Err(errors)
}

/// Words that a message begins with where its subject is the field.
const SAYS: [&str; 11] =
    ["is", "has", "holds", "must", "cannot", "needs", "opens", "passes", "makes", "starts", "would"];
/// What a place in a manifest begins with.
const IN_MANIFEST: &str = "kubernetes.manifest.";

/// A field's error as a sentence: the engine's are often without a subject, since the API names the field beside them.
pub fn sentence(error: &FieldError) -> String {
    let named = match error.field.strip_prefix("env.") {
        Some(variable) => variable.to_owned(),
        // A place in a manifest is its own name.
        None => label(error.field.strip_prefix(IN_MANIFEST).unwrap_or(&error.field)).to_owned(),
    };
    let first = error.message.split(' ').next().unwrap_or_default();
    let mut message =
        if SAYS.contains(&first) { format!("{named} {}", error.message) } else { error.message.clone() };
    if !message.ends_with('.') {
        message.push('.');
    }
    message
}

/// The first error of a field.
pub fn error_of<'a>(errors: &'a [FieldError], field: &str) -> Option<&'a FieldError> {
    errors.iter().find(|error| field_of(&error.field) == field)
}

/// What is allowed in a number field, in the words of its hint.
pub fn allowed(field: &str) -> String {
    let range = |low: i64, high: i64| format!("{low} to {}", format::count(high.unsigned_abs()));
    match field {
        name::REPLICAS => range(1, limits::REPLICAS),
        name::PROCESSES => range(1, limits::PROCESSES),
        name::ACCELERATORS => range(0, limits::ACCELERATORS),
        name::TASK_RESTARTS => range(0, limits::TASK_RESTARTS),
        name::IN_PLACE | name::HANG_RESTARTS => range(0, limits::IN_PLACE_RESTARTS),
        name::INTERVAL => range(*limits::HANG_INTERVAL_SECONDS.start(), *limits::HANG_INTERVAL_SECONDS.end()),
        name::WINDOW => range(1, limits::HANG_WINDOW_SECONDS),
        name::START_AFTER => range(0, limits::HANG_START_AFTER_SECONDS),
        name::PORT => format!("{} to {}", limits::EXIT_PORT.start(), limits::EXIT_PORT.end()),
        name::WAIT => range(*limits::EXIT_WAIT_SECONDS.start(), *limits::EXIT_WAIT_SECONDS.end()),
        _ => String::new(),
    }
}

/// Collects what could not be read while the rest is.
struct Reader<'a> {
    typed: &'a Typed,
    errors: Vec<FieldError>,
}

impl Reader<'_> {
    fn number(&mut self, field: &str, read: fn(&str, &str) -> Result<i64, String>) -> Option<i64> {
        match read(self.typed.text(field)?, &allowed(field)) {
            Ok(number) => Some(number),
            Err(why) => {
                self.errors.push(FieldError::new(field, why));
                None
            }
        }
    }

    fn whole(&mut self, field: &str) -> Option<i64> {
        self.number(field, numbers::whole)
    }

    fn seconds(&mut self, field: &str) -> Option<i64> {
        self.number(field, numbers::seconds)
    }

    fn text(&self, field: &str) -> Option<String> {
        Some(self.typed.get(field).trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn command(&mut self, field: &str) -> Vec<String> {
        lines::read_command(self.typed.get(field)).unwrap_or_else(|| {
            self.errors.push(FieldError::new(
                field,
                "has a quote that is not closed or an unknown escape in $'…'; close it or write \\\" for the character",
            ));
            Vec::new()
        })
    }

    fn env(&mut self) -> BTreeMap<String, String> {
        let (env, wrong) = lines::read_env(self.typed.get(name::ENV));
        self.errors.extend(wrong.into_iter().map(|why| FieldError::new(name::ENV, why)));
        env
    }
}

/// The draft as far as it can be read, what cannot, and the options of the pods with their lines.
fn read(typed: &Typed, site: &Site) -> (JobDraft, Vec<FieldError>, pods::Read) {
    let mut reader = Reader { typed, errors: Vec::new() };
    let (mut draft, pods) = if pasted::is_pasted(typed) {
        let (draft, wrong) = pasted::draft(typed);
        reader.errors.extend(wrong);
        (draft, pods::Read::default())
    } else {
        fields(&mut reader, site)
    };
    options(&mut draft.fault_tolerance, &mut reader);
    (draft, reader.errors, pods)
}

/// What a job is made of, from fields of its own.
fn fields(reader: &mut Reader<'_>, site: &Site) -> (JobDraft, pods::Read) {
    let typed = reader.typed;
    let pods = pods::read(&pods::as_sent(typed, site));
    let kind = match typed.get(name::KIND) {
        "" => None,
        "pytorchjob" => Some(JobKind::PyTorchJob),
        "rayjob" => Some(JobKind::RayJob),
        _ => {
            reader.errors.push(FieldError::new(name::KIND, "is neither pytorchjob nor rayjob; choose one"));
            None
        }
    };
    let draft = JobDraft {
        name: typed.get(name::NAME).trim().to_owned(),
        kind,
        cluster: reader.text(name::CLUSTER),
        image: reader.text(name::IMAGE),
        command: reader.command(name::COMMAND),
        env: reader.env(),
        replicas: reader.whole(name::REPLICAS),
        // A RayJob's command is started once; what is typed there is kept for a PyTorchJob.
        processes_per_replica: if typed.is_ray() { None } else { reader.whole(name::PROCESSES) },
        accelerators_per_replica: reader.whole(name::ACCELERATORS),
        working_dir: reader.text(name::WORKING_DIR),
        checkpoint_dir: reader.text(name::CHECKPOINT_DIR),
        kubernetes: pods.options.clone(),
        ..JobDraft::default()
    };
    reader.errors.extend(pods.errors.iter().cloned());
    (draft, pods)
}

/// The Advanced Options.
fn options(ft: &mut FaultToleranceDraft, reader: &mut Reader<'_>) {
    let typed = reader.typed;
    ft.auto_failover = Some(sent(typed, name::FAILOVER));
    ft.max_task_restarts = reader.whole(name::TASK_RESTARTS);
    ft.policy.enabled = Some(sent(typed, name::POLICY));
    ft.policy.policy_type = reader.text(name::POLICY_TYPE);
    ft.policy.max_in_place_restarts = reader.whole(name::IN_PLACE);
    ft.hang_detection.enabled = Some(sent(typed, name::HANG));
    ft.hang_detection.interval_seconds = reader.seconds(name::INTERVAL);
    ft.hang_detection.window_seconds = reader.seconds(name::WINDOW);
    ft.hang_detection.start_after_seconds = reader.seconds(name::START_AFTER);
    ft.hang_detection.max_in_place_restarts = reader.whole(name::HANG_RESTARTS);
    ft.hang_detection.diagnose = Some(typed.is_on(name::DIAGNOSE));
    ft.exit_checkpoint.enabled = Some(sent(typed, name::EXIT));
    ft.exit_checkpoint.port = reader.whole(name::PORT);
    ft.exit_checkpoint.max_wait_seconds = reader.seconds(name::WAIT);
    ft.health_checks.enabled = Some(sent(typed, name::HEALTH));
    let ticked = name::CHECKS.into_iter().zip(HEALTH_CHECKS).filter(|(field, _)| typed.is_on(field));
    ft.health_checks.checks = Some(ticked.map(|(_, check)| check.to_owned()).collect());
    ft.health_checks.command =
        Some(reader.command(name::CHECK_COMMAND)).filter(|command| !command.is_empty());
}

#[cfg(test)]
mod tests {
    use engine::{
        job::{ClusterKind, Mode, SiteCluster},
        time::Time,
    };

    use super::*;

    fn demo_with(changes: &[(&str, &str)]) -> Typed {
        let mut typed = Typed::demo(&Site::default(), Time(0));
        for (field, text) in changes {
            typed.set(field, *text);
        }
        typed
    }

    fn fields(typed: &Typed) -> Vec<String> {
        let errors = check(typed, &Site::default()).unwrap_err();
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_rayjob_starts_its_command_once_whatever_is_typed_for_a_pytorchjob() {
        let typed = demo_with(&[(name::KIND, "rayjob"), (name::PROCESSES, "8")]);
        assert_eq!(fields(&typed), ["kind"], "the local cluster runs none");
        let (draft, _, _) = read(&typed, &Site::default());
        assert_eq!(draft.processes_per_replica, None);
    }

    #[test]
    fn the_demo_is_valid_and_in_advanced_mode() {
        let (draft, spec) = checked(&Typed::demo(&Site::default(), Time(0)), &Site::default()).unwrap();
        assert_eq!(draft.command, ["python3", "examples/train.py", "--steps", "200"]);
        assert_eq!(draft.env["FAIL_AT"], "40");
        assert_eq!(
            (spec.fault_tolerance.mode(), spec.fault_tolerance.max_task_restarts),
            (Mode::Advanced, 2)
        );
    }

    #[test]
    fn an_untouched_form_lacks_only_name_and_command() {
        assert_eq!(fields(&Typed::prefilled(&Site::default())), ["name", "command"]);
    }

    #[test]
    fn a_draft_survives_the_form() {
        let site = Site::default();
        let (draft, spec) = checked(
            &demo_with(&[
                (name::COMMAND, "sh -c 'echo \"a b\"' ''"),
                (name::ENV, "A=1\r\n\r\nB=x=y z\r\nC=\"two\\nlines and a \\\"quote\\\"\""),
                (name::WINDOW, "20m"),
                (name::HANG, "on"),
            ]),
            &site,
        )
        .unwrap();
        assert_eq!(draft.command, ["sh", "-c", "echo \"a b\"", ""]);
        assert_eq!(draft.env["C"], "two\nlines and a \"quote\"");
        assert_eq!(spec.fault_tolerance.hang_detection.window_seconds, 1200);
        let again = check(&Typed::of_draft(&JobDraft::from(&spec), &site), &site).unwrap();
        assert_eq!(again.validate(&site).unwrap(), spec);
    }

    #[test]
    fn health_checks_are_what_is_ticked() {
        let site = Site::default();
        let mut typed = demo_with(&[(name::CHECK_COMMAND, "./check 'disk and net'")]);
        typed.turn(name::CHECKS[5], false);
        let (draft, spec) = checked(&typed, &site).unwrap();
        let settings = &spec.fault_tolerance.health_checks;
        assert!(settings.enabled, "on, as the site has it");
        assert_eq!(settings.checks, HEALTH_CHECKS[..5]);
        assert_eq!(settings.command.as_deref().unwrap(), ["./check", "disk and net"]);
        let again = check(&Typed::of_draft(&draft, &site), &site).unwrap();
        assert_eq!(again.validate(&site).unwrap(), spec);
        typed.turn(name::HEALTH, false);
        assert!(!checked(&typed, &site).unwrap().1.fault_tolerance.health_checks.enabled);
        assert_eq!(fields(&demo_with(&[(name::CHECK_COMMAND, "./check 'open")])), [name::CHECK_COMMAND]);
    }

    #[test]
    fn each_field_is_refused_once_with_the_most_telling_error() {
        for (changes, want) in [
            (&[(name::PORT, "8080")][..], vec![name::PORT]),
            (&[(name::PORT, "abc")], vec![name::PORT]),
            (&[(name::TASK_RESTARTS, "-1"), (name::REPLICAS, "")], vec![name::REPLICAS, name::TASK_RESTARTS]),
            (&[(name::COMMAND, "python3 'train.py")], vec![name::COMMAND]),
            (&[(name::ENV, "FOO\nRANK=3")], vec![name::ENV, "env.RANK"]),
            (&[(name::ENV, "A=1\nA=2")], vec![name::ENV]),
            (&[(name::ENV, "A=\"open")], vec![name::ENV]),
            (&[(name::WINDOW, "100")], vec![name::WINDOW]),
            (&[(name::KIND, "cronjob")], vec![name::KIND]),
        ] {
            assert_eq!(fields(&demo_with(changes)), want, "{changes:?}");
        }
    }

    #[test]
    fn an_error_reads_as_a_sentence_and_finds_its_field() {
        let of = |field: &str, message: &str| sentence(&FieldError::new(field, message));
        assert_eq!(
            of("name", "is missing; use 1 to 63 characters"),
            "Name is missing; use 1 to 63 characters."
        );
        assert_eq!(
            of("env.RANK", "is set by Holdfast for each process; remove it"),
            "RANK is set by Holdfast for each process; remove it."
        );
        assert_eq!(
            of(name::PORT, "8080 is not allowed. Use a whole number from 9000 to 9999."),
            "8080 is not allowed. Use a whole number from 9000 to 9999."
        );
        assert!(error_of(&[FieldError::new("env.RANK", "x")], name::ENV).is_some());
    }

    #[test]
    fn asking_for_a_view_creates_nothing_and_judges_nothing() {
        let typed = demo_with(&[(name::SHOW, "yaml"), (name::REPLICAS, "0")]);
        let Answer::ShowAgain(posted) = answer(typed.into_fields(), &Site::default()) else {
            panic!("created")
        };
        assert_eq!((posted.errors.len(), status(&posted)), (0, 200));
        let Answer::ShowAgain(wrong) =
            answer(demo_with(&[(name::REPLICAS, "0")]).into_fields(), &Site::default())
        else {
            panic!("created")
        };
        assert_eq!(status(&wrong), 422);
    }

    #[test]
    fn asking_the_cluster_creates_nothing_and_needs_a_job() {
        let site = Site::default();
        for (replicas, is_job) in [("2", true), ("0", false)] {
            let typed = demo_with(&[(name::SHOW, ASK), (name::REPLICAS, replicas)]);
            let Answer::ShowAgain(posted) = answer(typed.into_fields(), &site) else { panic!("created") };
            assert_eq!(asked_about(&posted, &site).is_some(), is_job);
            assert_eq!(status(&posted), if is_job { 200 } else { 422 });
        }
        let looks = demo_with(&[(name::SHOW, "yaml")]).into_fields();
        assert_eq!(asked_about(&shown_again(Typed::new(looks), Vec::new(), Vec::new()), &site), None);
    }

    #[test]
    fn what_the_cluster_says_names_the_field_and_the_line() {
        let typed = demo_with(&[(name::VOLUMES, "\n/data = claim/data")]);
        let site = Site {
            clusters: vec![SiteCluster {
                kind: ClusterKind::Kubernetes,
                ..Site::default().clusters[0].clone()
            }],
            ..Site::default()
        };
        let of = |field: &str, fit, text: &str| said(&Finding::at(field, fit, text), &typed, &site);
        assert_eq!(
            of("kubernetes.volumes[0].source", Fit::Never, "is not there: make it"),
            "Volumes: Line 2: the source is not there: make it."
        );
        assert_eq!(
            of("kubernetes.priority_class", Fit::Never, "is not there: make it"),
            format!("{} is not there: make it.", label(name::PRIORITY_CLASS))
        );
        assert_eq!(
            of("kubernetes.volumes[0].source", Fit::Ok, "Claim data is there."),
            "Claim data is there."
        );
    }

    #[test]
    fn what_moved_by_itself_is_reviewed_before_it_is_created() {
        let site = Site::default();
        let was = Typed::demo(&site, Time(0));
        let mut fields = was.clone().into_fields();
        for field in switches::RENDERED {
            if let Some(text) = was.text(field) {
                fields.push((format!("{}{field}", switches::WAS), text.to_owned()));
            }
        }
        assert!(matches!(answer(fields.clone(), &site), Answer::Create(_)));
        fields.retain(|(field, _)| field != name::FAILOVER);
        let Answer::ShowAgain(posted) = answer(fields, &site) else { panic!("created without a review") };
        assert_eq!((posted.errors.len(), posted.moved.len()), (0, 1));
    }
}
