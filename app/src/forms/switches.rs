//! The four switches of the Advanced Options and how they hang together. Job Hang Detection needs Fault Tolerance Policy;
//! both need Auto Failover; a RayJob has neither, nor Exit ckpt Notification. Whatever moves by itself is told.

use engine::job::Mode;

use super::typed::{Typed, label, name};

/// All switches.
pub const SWITCHES: [&str; 4] = [name::FAILOVER, name::POLICY, name::HANG, name::EXIT];
/// Switches and ticks that hang together with none of these.
pub const TICKS: [&str; 8] = [
    name::DIAGNOSE,
    name::HEALTH,
    name::CHECKS[0],
    name::CHECKS[1],
    name::CHECKS[2],
    name::CHECKS[3],
    name::CHECKS[4],
    name::CHECKS[5],
];
/// The prefix of hidden fields that say what was rendered.
pub const WAS: &str = "was.";
/// The prefix of hidden fields that keep a disabled switch's setting, which browsers leave out of a post.
pub const KEPT: &str = "kept.";
/// Fields that decide over switches and so are rendered a second time under [`WAS`].
pub const RENDERED: [&str; 7] =
    [name::FAILOVER, name::POLICY, name::HANG, name::EXIT, name::KIND, name::ACCELERATORS, name::MODE];

/// A switch that moved because of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which.
    pub switch: &'static str,
    /// Why, a sentence for beside it.
    pub why: &'static str,
}

impl Moved {
    /// The same with the switch's name, for a list.
    pub fn sentence(&self) -> String {
        let mut why = self.why.chars();
        let first = why.next().map(|c| c.to_ascii_lowercase()).into_iter();
        format!("{} was {}", label(self.switch), first.chain(why).collect::<String>())
    }
}

/// Why a switch cannot be used now; none can. Its setting is kept, and sent as off.
pub fn disabled(typed: &Typed, switch: &str) -> Option<&'static str> {
    let ray = typed.is_ray().then_some("RayJob uses basic mode.");
    let failover = (!typed.is_on(name::FAILOVER)).then_some("Needs Auto Failover, which is off.");
    match switch {
        name::POLICY => ray.or(failover),
        name::HANG => ray.or(failover).or_else(|| {
            (typed.get(name::ACCELERATORS).trim() == "0")
                .then_some("Watches GPU jobs only, and GPUs in each replica is 0.")
        }),
        name::EXIT => ray,
        _ => None,
    }
}

/// Whether a switch is sent as on.
pub fn sent(typed: &Typed, switch: &str) -> bool {
    typed.is_on(switch) && disabled(typed, switch).is_none()
}

/// Whether a field is on or off and nothing else.
pub fn is_switch(field: &str) -> bool {
    SWITCHES.contains(&field) || TICKS.contains(&field)
}

/// The mode that the switches make as they are sent.
pub fn mode(typed: &Typed) -> Mode {
    match (sent(typed, name::FAILOVER), sent(typed, name::POLICY), sent(typed, name::HANG)) {
        (false, _, _) => Mode::None,
        (true, false, _) => Mode::Basic,
        (true, true, false) => Mode::Advanced,
        (true, true, true) => Mode::Full,
    }
}

/// Turns one switch, and with it the one that hangs on it: hang detection on turns the policy on, the policy off turns
/// hang detection off, nothing else moves.
pub fn turn(typed: &mut Typed, switch: &str, on: bool) -> Option<Moved> {
    typed.turn(switch, on);
    match (switch, on) {
        (name::HANG, true) if !typed.is_on(name::POLICY) => {
            typed.turn(name::POLICY, true);
            Some(Moved { switch: name::POLICY, why: "Turned on because Job Hang Detection needs it." })
        }
        (name::POLICY, false) if typed.is_on(name::HANG) => {
            typed.turn(name::HANG, false);
            Some(Moved { switch: name::HANG, why: "Turned off because it needs Fault Tolerance Policy." })
        }
        _ => None,
    }
}

/// Sets the switches that a mode card stands for. Exit ckpt Notification is in none of the modes and stays.
pub fn choose(typed: &mut Typed, mode: Mode) {
    typed.turn(name::FAILOVER, mode != Mode::None);
    typed.turn(name::POLICY, matches!(mode, Mode::Advanced | Mode::Full));
    typed.turn(name::HANG, mode == Mode::Full);
}

/// The mode of a card's value.
pub fn card(value: &str) -> Option<Mode> {
    match value {
        "basic" => Some(Mode::Basic),
        "advanced" => Some(Mode::Advanced),
        "full" => Some(Mode::Full),
        _ => None,
    }
}

/// The value of a mode's card; empty where there is none.
pub const fn card_value(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "",
        Mode::Basic => "basic",
        Mode::Advanced => "advanced",
        Mode::Full => "full",
    }
}

/// Applies the rules to a post that was made without script: what the person changed is found by comparing with what
/// was rendered. Gives back a sentence for each thing that moved by itself.
pub fn settle(typed: &mut Typed) -> Vec<String> {
    let kept = typed.take_prefixed(KEPT);
    let was = typed.take_prefixed(WAS);
    for switch in SWITCHES {
        if kept.is_on(switch) {
            typed.turn(switch, true);
        }
    }
    if was.is_empty() {
        // No page of ours: whoever wrote this post meant what it says, and contradictions are field errors.
        return Vec::new();
    }
    let touched = |switch: &str, typed: &Typed| typed.is_on(switch) != was.is_on(switch);
    let any_touched = SWITCHES[..3].iter().any(|switch| touched(switch, typed));
    let mut moved = Vec::new();
    match card(typed.get(name::MODE)).filter(|_| typed.get(name::MODE) != was.get(name::MODE)) {
        // The card was chosen, so its switches did not move by themselves.
        Some(mode) if !any_touched => choose(typed, mode),
        _ => {
            let both = touched(name::POLICY, typed) && touched(name::HANG, typed);
            for switch in [name::HANG, name::POLICY] {
                if !both && touched(switch, typed) {
                    let on = typed.is_on(switch);
                    moved.extend(turn(typed, switch, on).map(|moved| moved.sentence()));
                }
            }
        }
    }
    for switch in &SWITCHES[1..] {
        let new = !was.is_on(switch) || sent(&was, switch);
        if let Some(why) = disabled(typed, switch).filter(|_| typed.is_on(switch) && new) {
            moved.push(format!("{} is sent as off. {why}", label(switch)));
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A form with these switches (failover, policy, hang, exit), one GPU, as a PyTorchJob.
    fn form(on: [bool; 4]) -> Typed {
        let mut typed = Typed::default();
        typed.set(name::KIND, "pytorchjob");
        typed.set(name::ACCELERATORS, "1");
        for (switch, on) in SWITCHES.into_iter().zip(on) {
            typed.turn(switch, on);
        }
        typed.set(name::MODE, card_value(mode(&typed)));
        typed
    }

    fn on(typed: &Typed) -> [bool; 4] {
        SWITCHES.map(|switch| typed.is_on(switch))
    }

    /// `posted` as a browser sends it back on a page that was rendered from `was`.
    fn post(was: &Typed, posted: &Typed) -> Typed {
        let mut fields = posted.clone().into_fields();
        fields.retain(|(field, _)| disabled(was, field).is_none());
        for field in RENDERED {
            if let Some(text) = was.text(field) {
                fields.push((format!("{WAS}{field}"), text.to_owned()));
            }
        }
        for switch in SWITCHES {
            if was.is_on(switch) && disabled(was, switch).is_some() {
                fields.push((format!("{KEPT}{switch}"), "on".to_owned()));
            }
        }
        Typed::new(fields)
    }

    #[test]
    fn hang_on_turns_the_policy_on_and_policy_off_turns_hang_off() {
        let mut typed = form([true, false, false, false]);
        let moved = turn(&mut typed, name::HANG, true).unwrap();
        assert_eq!(
            (on(&typed), moved.why),
            ([true, true, true, false], "Turned on because Job Hang Detection needs it.")
        );
        let moved = turn(&mut typed, name::POLICY, false).unwrap();
        assert_eq!((on(&typed), moved.switch), ([true, false, false, false], name::HANG));
        assert_eq!(turn(&mut typed, name::POLICY, true), None);
        assert_eq!(turn(&mut typed, name::FAILOVER, false), None);
        assert_eq!(
            moved.sentence(),
            "Job Hang Detection was turned off because it needs Fault Tolerance Policy."
        );
    }

    #[test]
    fn without_failover_settings_are_kept_and_sent_as_off() {
        let mut typed = form([true, true, true, true]);
        turn(&mut typed, name::FAILOVER, false);
        assert_eq!(on(&typed), [false, true, true, true]);
        assert_eq!(SWITCHES.map(|switch| sent(&typed, switch)), [false, false, false, true]);
        turn(&mut typed, name::FAILOVER, true);
        assert_eq!(mode(&typed), Mode::Full);
    }

    #[test]
    fn a_rayjob_gets_its_values_back_as_a_pytorchjob() {
        let mut typed = form([true, true, true, true]);
        typed.set(name::KIND, "rayjob");
        assert_eq!(SWITCHES.map(|switch| sent(&typed, switch)), [true, false, false, false]);
        assert_eq!(mode(&typed), Mode::Basic);
        typed.set(name::KIND, "pytorchjob");
        assert_eq!(mode(&typed), Mode::Full);
    }

    #[test]
    fn no_gpus_disable_hang_detection() {
        let mut typed = form([true, true, true, false]);
        typed.set(name::ACCELERATORS, " 0");
        assert_eq!((mode(&typed), sent(&typed, name::HANG)), (Mode::Advanced, false));
    }

    #[test]
    fn without_script_the_same_rules_apply_and_are_told() {
        let needs_it = "Fault Tolerance Policy was turned on because Job Hang Detection needs it.";
        let off = "Job Hang Detection was turned off because it needs Fault Tolerance Policy.";
        for (case, was, posted, want, told) in [
            (
                "nothing changed",
                [true, true, false, false],
                [true, true, false, false],
                [true, true, false, false],
                vec![],
            ),
            (
                "hang turned on",
                [true, false, false, false],
                [true, false, true, false],
                [true, true, true, false],
                vec![needs_it],
            ),
            (
                "policy turned off",
                [true, true, true, false],
                [true, false, true, false],
                [true, false, false, false],
                vec![off],
            ),
            (
                "a contradiction is left to the check",
                [true, true, false, false],
                [true, false, true, false],
                [true, false, true, false],
                vec![],
            ),
        ] {
            let mut typed = post(&form(was), &{
                let mut typed = form(posted);
                typed.set(name::MODE, form(was).get(name::MODE));
                typed
            });
            assert_eq!(settle(&mut typed), told, "{case}");
            assert_eq!(on(&typed), want, "{case}");
        }
    }

    #[test]
    fn a_chosen_card_sets_its_switches_though_they_were_disabled() {
        let was = form([false, false, false, false]);
        let mut posted = was.clone();
        posted.set(name::MODE, "full");
        let mut typed = post(&was, &posted);
        assert_eq!(settle(&mut typed), Vec::<String>::new());
        assert_eq!((on(&typed), mode(&typed)), ([true, true, true, false], Mode::Full));
    }

    #[test]
    fn what_is_sent_as_off_is_told_once_and_kept() {
        let was = form([true, true, true, false]);
        let mut posted = was.clone();
        posted.turn(name::FAILOVER, false);
        let mut typed = post(&was, &posted);
        let told = settle(&mut typed);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], "Fault Tolerance Policy is sent as off. Needs Auto Failover, which is off.");
        assert_eq!(on(&typed), [false, true, true, false]);
        // The page is shown again, with both disabled and kept; the second post tells nothing new.
        let mut again = post(&typed, &typed);
        assert_eq!(settle(&mut again), Vec::<String>::new());
        assert_eq!(on(&again), [false, true, true, false]);
    }

    #[test]
    fn a_post_that_is_no_page_of_ours_is_taken_as_it_is() {
        let mut typed = form([true, false, true, false]);
        assert_eq!(settle(&mut typed), Vec::<String>::new());
        assert_eq!(on(&typed), [true, false, true, false]);
    }
}
