//! Lines of a log: numbered, timed, their evidence marked. Everything in them is text, whatever it looks like.

use engine::{failure::Role, time::Time};
use leptos::prelude::*;

use crate::{
    console::{LogLevel, LogLine},
    format::{self, Zone},
};

/// One line with its address `#L<n>`.
pub fn log_line(line: &LogLine, role: Option<Role>, query: &str, zone: Zone) -> AnyView {
    let ground = match role {
        Some(Role::Root) => "border-amber bg-evidence",
        Some(Role::Cascade) => "border-edge bg-hover",
        _ => "border-transparent",
    };
    let (word, tone) = match line.level {
        LogLevel::Error => ("ERR", "font-semibold text-red"),
        LogLevel::Warning => ("WARN", "text-amber"),
        LogLevel::Info => ("INFO", "text-ink-3"),
    };
    let anchor = format!("L{}", line.n);
    let role_word = match role {
        Some(Role::Root) => Some("evidence, root: "),
        Some(Role::Cascade) => Some("evidence, cascade: "),
        _ => None,
    };
    let hit = role.is_some() || (!query.is_empty() && find(&line.text, query).is_some());
    view! {
        <li
            id=anchor.clone()
            data-hit=hit.then_some("")
            class=format!(
                "grid min-w-max grid-cols-[64px_96px_44px_minmax(max-content,1fr)] border-l-[3px] pr-4 whitespace-pre target:bg-selected target:outline-1 target:-outline-offset-1 target:outline-focus {ground}",
            )
        >
            <a class="pr-4 text-right text-ink-3 no-underline select-none" href=format!("#{anchor}") rel="external" tabindex="-1">
                {line.n}
            </a>
            <time class="text-ink-3">{millis(line.at, zone)}</time>
            <span class=tone>{word}</span>
            <span>
                {role_word.map(|word| view! { <span class="unseen">{word}</span> })}
                {line.rank.map(|rank| view! { <span class="text-ink-3">{format!("[rank{rank}] ")}</span> })}
                {marked(&line.text, query)}
            </span>
        </li>
    }
    .into_any()
}

/// A line in short, for the Overview: time, rank, text, folded where it is long.
pub fn tail_line(line: &LogLine, zone: Zone) -> AnyView {
    let rank = line.rank.map(|rank| format!("rank{rank}")).unwrap_or_default();
    let tone = match line.level {
        LogLevel::Error => "font-semibold text-red",
        LogLevel::Warning => "text-amber",
        LogLevel::Info => "text-ink-3",
    };
    view! {
        <li class="grid grid-cols-[72px_56px_minmax(0,1fr)] px-4 wrap-anywhere whitespace-pre-wrap max-sm:grid-cols-[72px_minmax(0,1fr)]">
            <time class="text-ink-3">{format::clock(line.at, zone)}</time>
            <span class=format!("max-sm:hidden {tone}")>{rank}</span>
            <span>{line.text.clone()}</span>
        </li>
    }
    .into_any()
}

/// `11:06:01.902`.
pub fn millis(at: Time, zone: Zone) -> String {
    format!("{}.{:03}", format::clock(at, zone), at.micros().rem_euclid(1_000_000) / 1_000)
}

fn marked(text: &str, query: &str) -> AnyView {
    hits(text, query)
        .into_iter()
        .map(|(hit, part)| {
            let part = part.to_owned();
            if hit {
                view! { <mark class="rounded-xs bg-amber/25 text-inherit">{part}</mark> }.into_any()
            } else {
                view! { {part} }.into_any()
            }
        })
        .collect_view()
        .into_any()
}

/// Splits a text into what matches and what does not, whatever the case of ASCII letters.
pub fn hits<'a>(text: &'a str, query: &str) -> Vec<(bool, &'a str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    if !query.is_empty() {
        while let Some(at) = find(rest, query) {
            if at > 0 {
                parts.push((false, &rest[..at]));
            }
            parts.push((true, &rest[at..at + query.len()]));
            rest = &rest[at + query.len()..];
        }
    }
    if !rest.is_empty() {
        parts.push((false, rest));
    }
    parts
}

fn find(text: &str, query: &str) -> Option<usize> {
    let (bytes, wanted) = (text.as_bytes(), query.as_bytes());
    (0..(bytes.len() + 1).saturating_sub(wanted.len())).find(|at| {
        // Both ends on a character, else slicing would cut one.
        text.is_char_boundary(*at)
            && text.is_char_boundary(at + wanted.len())
            && bytes[*at..at + wanted.len()].eq_ignore_ascii_case(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn hits_are_found_whatever_their_case_and_never_cut_a_character() {
        assert_eq!(hits("GPU gpu é", "gpu"), [(true, "GPU"), (false, " "), (true, "gpu"), (false, " é")]);
        assert_eq!(hits("ééé", "é").len(), 3);
        assert_eq!(hits("abc", ""), [(false, "abc")]);
        assert_eq!(hits("", "x"), []);
        assert_eq!(hits("日本", "longer than the text"), [(false, "日本")]);
    }

    #[test]
    fn markup_in_a_line_stays_text() {
        let line = LogLine {
            n: 7,
            at: samples::at(1),
            rank: Some(3),
            level: LogLevel::Error,
            text: "<script>alert(1)</script>".to_owned(),
        };
        let html = Owner::new().with(|| log_line(&line, Some(Role::Root), "alert", Zone::UTC).to_html());
        assert!(!html.contains("<script>") && html.contains("&lt;script"), "{html}");
        assert!(html.contains("id=\"L7\"") && html.contains("evidence, root") && html.contains("data-hit"));
    }
}
