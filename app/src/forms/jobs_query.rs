//! The jobs list's filters as in its address. Reading is lenient: an address is typed, cut and shared by people, so
//! what is unknown there is left out instead of refused.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    console::{JobsQuery, JobsSort, JobsViewName},
    paths,
};

/// Rows a page where the address does not say.
pub const DEFAULT_SIZE: u32 = 50;

/// The parameter that names a filter to leave out, whatever its own parameter says.
pub const WITHOUT: &str = "without";

/// Reads the filters; `get` gives a parameter by its name.
pub fn read(get: impl Fn(&str) -> Option<String>) -> JobsQuery {
    let without = get(WITHOUT);
    let get = |name: &str| get(name).filter(|_| without.as_deref() != Some(name));
    let text = |name| get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let number = |name| text(name).and_then(|text| text.parse::<u32>().ok());
    JobsQuery {
        view: text("view").and_then(|view| word(&view)),
        q: text("q").map(|q| q.chars().take(200).collect()),
        state: text("state").and_then(|state| word(&state)),
        kind: text("kind").and_then(|kind| word(&kind)),
        fault: text("fault").and_then(|fault| word(&fault)),
        owner: text("owner").map(|owner| owner.chars().take(200).collect()),
        restarts: number("restarts").filter(|restarts| *restarts > 0),
        sort: text("sort").and_then(|sort| word(&sort)),
        page: number("page").filter(|page| *page > 1),
        size: number("size").map(|size| size.clamp(10, 200)).filter(|size| *size != DEFAULT_SIZE),
    }
}

/// The same as a query string, without what is the default.
pub fn write(query: &JobsQuery) -> String {
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let pairs = [
        ("view", query.view.filter(|view| *view != JobsViewName::All).map(|view| name(&view))),
        ("q", query.q.clone()),
        ("state", query.state.map(|state| name(&state))),
        ("kind", query.kind.map(|kind| name(&kind))),
        ("fault", query.fault.map(|fault| name(&fault))),
        ("owner", query.owner.clone()),
        ("restarts", number(query.restarts)),
        ("sort", query.sort.filter(|sort| *sort != JobsSort::Newest).map(|sort| name(&sort))),
        ("page", number(query.page.filter(|page| *page > 1))),
        ("size", number(query.size)),
    ];
    let pairs =
        pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", paths::encode(&value?))));
    pairs.collect::<Vec<_>>().join("&")
}

/// Whether anything narrows the list within its view.
pub fn is_filtered(query: &JobsQuery) -> bool {
    let JobsQuery { q, state, kind, fault, owner, restarts, view: _, sort: _, page: _, size: _ } = query;
    q.is_some()
        || state.is_some()
        || kind.is_some()
        || fault.is_some()
        || owner.is_some()
        || restarts.is_some()
}

/// A word of the API as a value.
pub fn word<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

/// A value as its word of the API; empty for what is no word.
pub fn name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use engine::{failure::FailureType, job::JobKind, record::State};

    use super::*;

    fn full() -> JobsQuery {
        JobsQuery {
            view: Some(JobsViewName::Attention),
            q: Some("7b & more".to_owned()),
            state: Some(State::Failed),
            kind: Some(JobKind::PyTorchJob),
            fault: Some(FailureType::HwNode),
            owner: Some("user-1".to_owned()),
            restarts: Some(2),
            sort: Some(JobsSort::Restarts),
            page: Some(3),
            size: Some(20),
        }
    }

    #[test]
    fn an_address_holds_every_filter() {
        assert_eq!(
            write(&full()),
            "view=attention&q=7b%20%26%20more&state=failed&kind=pytorchjob&fault=HW_NODE&owner=user-1&restarts=2&sort=restarts&page=3&size=20"
        );
        let pairs: Vec<(String, String)> = write(&full())
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.replace("%20", " ").replace("%26", "&")))
            .collect();
        let get = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        assert_eq!(read(get), full());
    }

    #[test]
    fn a_filter_that_is_taken_away_leaves_the_others() {
        let get = |name: &str| match name {
            "q" => Some("typed".to_owned()),
            "state" => Some("failed".to_owned()),
            WITHOUT => Some("state".to_owned()),
            _ => None,
        };
        assert_eq!(read(get), JobsQuery { q: Some("typed".to_owned()), ..JobsQuery::default() });
    }

    #[test]
    fn what_is_unknown_or_the_default_is_left_out() {
        let get = |name: &str| {
            let text = match name {
                "state" => "exploded",
                "page" => "1",
                "size" => "50",
                "restarts" => "-1",
                _ => "  ",
            };
            Some(text.to_owned())
        };
        assert_eq!(read(get), JobsQuery::default());
        assert_eq!(write(&JobsQuery::default()), "");
        assert!(!is_filtered(&JobsQuery { page: Some(2), ..JobsQuery::default() }));
    }
}
