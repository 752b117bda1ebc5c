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

    /// Whether a cluster of this name is configured on this server.
    pub(super) fn is_configured(&self, cluster: &str) -> bool {
        self.site.clusters.iter().any(|known| known.name == cluster)
    }

    /// That the cluster of a job is not configured here, in words.
    pub(super) fn missing_cluster(&self, spec: &JobSpec) -> Option<String> {
        (!self.is_configured(&spec.cluster)).then(|| not_configured(&spec.cluster))
    }

    /// What keeps a job's cluster from working for it, where that matters to it.
    pub(super) fn shown_troubles(&self, spec: &JobSpec, summary: &Summary) -> Vec<String> {
        let matters = !summary.state.is_terminal() || !self.is_configured(&spec.cluster);
        if matters { self.troubles_of(spec) } else { Vec::new() }
    }

    fn troubles_of(&self, spec: &JobSpec) -> Vec<String> {
        let name = &spec.cluster;
        let Some(cluster) = self.site.clusters.iter().find(|known| known.name == *name) else {
            return vec![format!(
                "{} Nothing is known of what the job does there, and nothing is concluded or restarted. Configure the cluster under this name again, or delete the job.",
                not_configured(name)
            )];
        };
        let namespace = spec.kubernetes.namespace.as_ref().or(cluster.namespaces.first());
        let site = self.site_now();
        let troubles = site.troubles_of(name, spec.kind, namespace.map(String::as_str));
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

/// The words for a job whose cluster this server has not.
fn not_configured(cluster: &str) -> String {
    format!("Cluster {cluster} is not configured on this server.")
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
