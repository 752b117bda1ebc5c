//! From watches that fail to what people are told before they create a job there. Pure.

use std::collections::BTreeMap;

use engine::job::{ClusterTrouble, JobKind};

use super::{health::Watched, names, settings::KubernetesSettings};

/// What a cluster cannot do. One that is out of reach says nothing else; what fails in all namespaces alike is said once.
pub(super) fn of(failing: Vec<(Watched, String)>, settings: &KubernetesSettings) -> Vec<ClusterTrouble> {
    let trouble =
        |kind, namespace, text| ClusterTrouble { cluster: settings.name.clone(), kind, namespace, text };
    if let Some((_, words)) = failing.iter().find(|(watched, _)| *watched == Watched::Server) {
        return vec![trouble(None, None, format!("it cannot be reached: {words}"))];
    }
    let mut namespaces: BTreeMap<(Option<JobKind>, String), Vec<String>> = BTreeMap::new();
    for (watched, words) in failing {
        let (kind, namespace) = match watched {
            Watched::Jobs(kind, namespace) => (Some(kind), namespace),
            Watched::Pods(namespace) => (None, namespace),
            // Only words come from them; jobs run without.
            Watched::Server
            | Watched::Events(..)
            | Watched::PodEvents(..)
            | Watched::Nodes
            | Watched::Queueing(..) => continue,
        };
        namespaces.entry((kind, words)).or_default().push(namespace);
    }
    let told = namespaces.into_iter().flat_map(|((kind, words), namespaces)| {
        let what = kind.map_or_else(|| "pods".to_owned(), |kind| format!("{}s", names::resource(kind).kind));
        let is_everywhere = namespaces.len() == settings.namespaces.len();
        let places = if is_everywhere { vec![None] } else { namespaces.into_iter().map(Some).collect() };
        places.into_iter().map(move |place| {
            let of_place = place.as_ref().map(|name| format!(" of namespace {name}")).unwrap_or_default();
            (kind, place, format!("{what}{of_place} cannot be watched: {words}"))
        })
    });
    told.map(|(kind, namespace, text)| trouble(kind, namespace, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::kubernetes::fake::settings;

    fn told(failing: &[(Watched, &str)]) -> Vec<(Option<JobKind>, Option<String>, String)> {
        let failing = failing.iter().map(|(watched, words)| (watched.clone(), (*words).to_owned())).collect();
        let troubles = of(failing, &settings());
        assert!(troubles.iter().all(|trouble| trouble.cluster == "kubernetes"));
        troubles.into_iter().map(|trouble| (trouble.kind, trouble.namespace, trouble.text)).collect()
    }

    fn jobs(namespace: &str) -> Watched {
        Watched::Jobs(JobKind::RayJob, namespace.to_owned())
    }

    #[test]
    fn an_operator_that_is_missing_is_told_once() {
        let everywhere = [(jobs("train"), "install KubeRay"), (jobs("eval"), "install KubeRay")];
        let text = "RayJobs cannot be watched: install KubeRay".to_owned();
        assert_eq!(told(&everywhere), [(Some(JobKind::RayJob), None, text)]);
    }

    #[test]
    fn a_right_that_is_missing_in_a_namespace_is_told_of_that_one() {
        let pods = Watched::Pods("eval".to_owned());
        let text = "pods of namespace eval cannot be watched: forbidden".to_owned();
        let events = Watched::Events(JobKind::RayJob, "eval".to_owned());
        assert_eq!(
            told(&[(pods, "forbidden"), (Watched::Nodes, "forbidden"), (events, "forbidden")]),
            [(None, Some("eval".to_owned()), text)]
        );
    }

    #[test]
    fn a_cluster_that_is_out_of_reach_says_nothing_else() {
        let text = "it cannot be reached: away".to_owned();
        assert_eq!(told(&[(jobs("train"), "away too"), (Watched::Server, "away")]), [(None, None, text)]);
    }
}
