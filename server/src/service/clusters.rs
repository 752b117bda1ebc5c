//! Clusters as people see them: which there are, and what they cannot do now.

use engine::{
    job::{ClusterTrouble, JobSpec, Site, SiteCluster},
    record::Summary,
};

use super::Service;

impl Service {
    /// Clusters, policies and prefilled values, with what the clusters cannot do now.
    pub(super) fn site_now(&self) -> Site {
        let known = self.site.clusters.iter().filter_map(|cluster| self.clusters.get(&cluster.name));
        Site { troubles: known.flat_map(|cluster| cluster.troubles()).collect(), ..self.site.clone() }
    }

    /// That the cluster of a job, or the namespace its attempts are in, is not configured here, in words.
    pub(super) fn missing(&self, spec: &JobSpec) -> Option<String> {
        self.missing_and_advice(spec).map(|(missing, _)| missing)
    }

    /// The same with what to do.
    fn missing_and_advice(&self, spec: &JobSpec) -> Option<(String, &'static str)> {
        let name = &spec.cluster;
        if self.site.clusters.iter().all(|known| known.name != *name) {
            let missing = format!("Cluster {name} is not configured on this server.");
            return Some((missing, "Configure the cluster under this name again"));
        }
        let namespace = self.clusters.get(name)?.missing_namespace(spec)?;
        Some((
            format!("Namespace {namespace} is not configured for cluster {name} on this server."),
            "Add it to the cluster's namespaces again (--kube-namespace)",
        ))
    }

    /// What keeps a job's cluster from working for it, where that matters to it.
    pub(super) fn shown_troubles(&self, spec: &JobSpec, summary: &Summary) -> Vec<String> {
        if let Some((missing, advice)) = self.missing_and_advice(spec) {
            return vec![format!(
                "{missing} Nothing is known of what the job does there, and nothing is concluded or restarted. {advice}, or delete the job."
            )];
        }
        if summary.state.is_terminal() { Vec::new() } else { self.troubles_of(spec) }
    }

    fn troubles_of(&self, spec: &JobSpec) -> Vec<String> {
        let name = &spec.cluster;
        let cluster = self.site.clusters.iter().find(|known| known.name == *name);
        let default = || cluster.and_then(SiteCluster::default_namespace);
        let namespace = spec.kubernetes.namespace.as_deref().or_else(default);
        let site = self.site_now();
        let troubles = site.troubles_of(name, spec.kind, namespace);
        troubles.map(|trouble| format!("Cluster {name}: {}.", trouble.text.trim_end_matches('.'))).collect()
    }
}

/// Whether jobs can run somewhere on a cluster: what it cannot do is neither said of all of it nor of each of its namespaces.
pub(super) fn is_up(cluster: &SiteCluster, troubles: &[ClusterTrouble]) -> bool {
    let is_down = |place: Option<&String>| {
        troubles.iter().any(|trouble| {
            trouble.cluster == cluster.name
                && trouble.kind.is_none()
                && (trouble.namespace.is_none() || trouble.namespace.as_ref() == place)
        })
    };
    let places = &cluster.namespaces;
    if places.is_empty() { !is_down(None) } else { places.iter().any(|place| !is_down(Some(place))) }
}

#[cfg(test)]
mod tests {
    use engine::job::JobKind;

    use super::*;

    #[test]
    fn a_cluster_is_down_where_no_job_can_run_on_it() {
        let (namespaces, ray) = (vec!["train".to_owned(), "eval".to_owned()], Some(JobKind::RayJob));
        let cluster = SiteCluster { namespaces, ..SiteCluster::kubernetes("here") };
        let trouble = |cluster: &str, kind, namespace: Option<&str>| ClusterTrouble {
            cluster: cluster.to_owned(),
            kind,
            namespace: namespace.map(str::to_owned),
            text: "it cannot be watched".to_owned(),
        };
        for (case, troubles, want) in [
            ("nothing", vec![], true),
            ("all of it", vec![trouble("here", None, None)], false),
            ("all of another", vec![trouble("there", None, None)], true),
            ("one kind of job", vec![trouble("here", ray, None)], true),
            ("one namespace", vec![trouble("here", None, Some("eval"))], true),
            (
                "each namespace in its own words",
                ["eval", "train"].map(|place| trouble("here", None, Some(place))).into(),
                false,
            ),
            (
                "one kind of job in each namespace",
                ["eval", "train"].map(|place| trouble("here", ray, Some(place))).into(),
                true,
            ),
        ] {
            assert_eq!(is_up(&cluster, &troubles), want, "{case}");
        }
        let anywhere = SiteCluster::kubernetes("here");
        assert!(is_up(&anywhere, &[]) && !is_up(&anywhere, &[trouble("here", None, None)]));
    }
}
