//! Clusters as people see them: which there are, and what they cannot do now.

use engine::{
    job::{JobSpec, Site, SiteCluster},
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
