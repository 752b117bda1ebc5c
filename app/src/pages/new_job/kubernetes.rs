//! What a job's pods are made of: beside the parts Resources and Data, for clusters of Kubernetes.
//!
//! Which cluster is chosen is known to the browser alone until the form is sent, so a style shows and hides these fields
//! by the chosen option's `data-kind`: the same without script, and nothing moves when the scripts come.

use engine::job::{ClusterKind, ClusterTrouble, SiteCluster};
use leptos::prelude::*;

use super::{
    basics::{GRID, Text},
    state::FormState,
};
use crate::{
    components::{
        badge::kind_name,
        field::{Field, SELECT, TextArea, hint_id},
    },
    forms::{
        pods,
        typed::{label, name},
    },
};

/// Hidden while a local cluster is chosen.
const ON_KUBERNETES: &str = "mt-5 group-has-[[data-kind=local]:checked]/form:hidden";
/// Shown while a local cluster is chosen.
const ON_LOCAL: &str = "mt-5 hidden group-has-[[data-kind=local]:checked]/form:block";

/// The cluster; its options say of which kind each is.
#[component]
pub fn Cluster(form: FormState) -> impl IntoView {
    let chosen = form.first(name::CLUSTER);
    let clusters = form.site.with_value(|site| site.clusters.clone());
    let options = clusters.into_iter().map(move |cluster| {
        let (name, selected) = (cluster.name.clone(), cluster.name == chosen);
        let kind = match cluster.kind {
            ClusterKind::Local => "local",
            ClusterKind::Kubernetes => "kubernetes",
        };
        view! { <option value=name selected=selected data-kind=kind>{cluster.name}</option> }
    });
    view! {
        <Field
            name=name::CLUSTER
            label=label(name::CLUSTER)
            error=form.error(name::CLUSTER)
            hint=move || move || if form.on_kubernetes() { "where it runs: pods of this Kubernetes cluster" } else { "where it runs" }
        >
            <select
                id=name::CLUSTER
                name=name::CLUSTER
                class=format!("{SELECT} w-full")
                aria-describedby=hint_id(name::CLUSTER)
                on:change=move |event| form.changed(name::CLUSTER).run(event_target_value(&event))
            >
                {options.collect_view()}
            </select>
        </Field>
    }
}

/// What may stand in the field of the namespace.
fn namespaces(cluster: SiteCluster) -> String {
    match cluster.namespaces.as_slice() {
        [] => "of the job's objects; empty: the one set for the cluster".to_owned(),
        [only] => format!("of the job's objects; only {only} is allowed, also where it is empty"),
        [first, ..] => {
            format!("of the job's objects: {}; empty: {first}", cluster.namespaces.join(", "))
        }
    }
}

/// What clusters cannot do now. Of all of them: which one is chosen is known to the browser alone, and without script it cannot be told apart.
#[component]
pub fn Lacking(form: FormState) -> impl IntoView {
    let troubles = form.site.with_value(|site| site.troubles.clone());
    (!troubles.is_empty()).then(|| {
        let lines = troubles.into_iter().map(|ClusterTrouble { cluster, kind, text, .. }| {
            let what = match kind {
                Some(kind) => format!("{} on {cluster}", kind_name(kind)),
                None => cluster,
            };
            view! { <li class="wrap-anywhere"><b>{what}</b> ": " {text}</li> }
        });
        view! {
            <section class="col-span-full text-ink-3" aria-label="What clusters cannot do now">
                <p>"What clusters cannot do now; a job that needs it waits there, or is refused:"</p>
                <ul class="grid gap-1 mt-1 pl-4 list-disc marker:text-ink-3">{lines.collect_view()}</ul>
            </section>
        }
    })
}

/// A list with an entry on each line.
#[component]
fn Lines(form: FormState, field: &'static str, #[prop(into)] hint: ViewFn) -> impl IntoView {
    view! { <TextArea bound=form.bound(field) rows=2 hint/> }
}

/// Amounts and placement, in Resources. Where they are not used it says why.
#[component]
pub fn PodResources(form: FormState) -> impl IntoView {
    if !form.has_cluster(ClusterKind::Kubernetes) {
        return view! {
            <p class="mt-5 text-ink-3">"CPU, memory, volumes and other options of pods are for Kubernetes; this server has no such cluster."</p>
        }
        .into_any();
    }
    let unsent = move || form.typed.with(|typed| form.site.with_value(|site| pods::unsent(typed, site)));
    let was = move || form.typed.with(|typed| form.site.with_value(|site| pods::was_value(typed, site)));
    view! {
        <input type="hidden" name=pods::was_field() value=was/>
        <div class=ON_LOCAL>
            <p class="text-ink-3">"CPU, memory, volumes and other options of pods are for Kubernetes; the local cluster runs programs of this machine."</p>
            <p role="status" class="empty:hidden">
                {move || unsent().then_some("What is filled in for Kubernetes is kept, and not sent.")}
            </p>
        </div>
        <div class=ON_KUBERNETES role="group" aria-labelledby="pods-resources">
            <h3 id="pods-resources" class="mb-2">"Pods"</h3>
            <div class=GRID>
                <Text form field=name::CPU mono=true hint=|| "of each replica, requested and limited alike: 4, 0.5 or 500m; empty: what the cluster gives"/>
                <Text form field=name::MEMORY mono=true hint=|| "of each replica: 64Gi or 512Mi; /dev/shm counts into it"/>
                <Text form field=name::ACCELERATOR_RESOURCE mono=true hint=|| "what counts GPUs: nvidia.com/gpu; empty: the one set for the cluster"/>
                <Text form field=name::SHM_SIZE mono=true hint=|| "8Gi; empty: usually 64 MiB, too little for data loaders with many workers"/>
                <Text form field=name::NAMESPACE mono=true hint=move || move || form.cluster().map(namespaces)/>
                <Text form field=name::PRIORITY_CLASS mono=true hint=|| "a PriorityClass; empty: the cluster's default"/>
                <Text form field=name::SERVICE_ACCOUNT mono=true hint=|| "a ServiceAccount of the namespace; empty: its default"/>
                <Text form field=name::KUEUE_QUEUE mono=true hint=|| "a LocalQueue of the namespace that admits the job; empty: none"/>
                <Text form field=name::VOLCANO_QUEUE mono=true hint=|| "a queue of Volcano, which then schedules the pods; empty: none"/>
                <Text form field=name::SCHEDULER mono=true hint=|| "of the pods; empty: the cluster's, or volcano with a queue of it"/>
                <Lines form field=name::PULL_SECRETS hint=|| "Secrets to pull the image with, a name on each line"/>
                <Lines form field=name::NODE_SELECTOR hint=|| "key=value, one a line; a node must have them all"/>
                <Lines form field=name::TOLERATIONS hint=|| "key=value:NoSchedule, one a line; without =value any, without :effect all; * is every key"/>
                <Lines form field=name::POD_LABELS hint=|| "key=value, one a line, such as team=speech"/>
            </div>
        </div>
    }
    .into_any()
}

/// What is mounted and what comes from Secrets, in Data.
#[component]
pub fn PodData(form: FormState) -> impl IntoView {
    let host_paths = move || form.cluster().is_some_and(|cluster| cluster.allows_host_paths);
    form.has_cluster(ClusterKind::Kubernetes).then(|| {
        view! {
            <div class=ON_KUBERNETES role="group" aria-labelledby="pods-data">
                <h3 id="pods-data" class="mb-2">"Volumes and Secrets"</h3>
                <div class="grid gap-y-3.5">
                    <Lines form field=name::VOLUMES hint=move || view! {
                        "/data = claim/NAME, one a line; also config_map/NAME or secret/NAME"
                        {move || host_paths().then_some(", host_path/DIRECTORY")}
                        "; ro at the end makes it read only"
                    }/>
                    <Lines form field=name::SECRETS hint=|| "VARIABLE = SECRET/KEY, one a line; the value stays in the cluster"/>
                </div>
            </div>
        }
    })
}

#[cfg(test)]
mod tests {
    use engine::{
        job::{FieldError, Site, SiteCluster},
        time::Time,
    };

    use super::{
        super::{Basics, FormState},
        *,
    };
    use crate::{console::Posted, forms::typed::Typed, server_fns::new_job::NewJobStart};

    fn with_kubernetes() -> Site {
        let mut site = Site::default();
        site.clusters.push(SiteCluster::kubernetes("gpu-a"));
        site
    }

    fn html(site: Site, fields: &[(&str, &str)], errors: Vec<FieldError>) -> String {
        let mut typed = Typed::prefilled(&site);
        for (field, text) in fields {
            typed.set(field, *text);
        }
        let posted = Some(Posted { errors, ..Posted::default() });
        let start = NewJobStart { site, original: None, posted, now: Time(0) };
        Owner::new().with(|| {
            let form = FormState::new(typed, &start);
            view! { <Basics form/> }.to_html()
        })
    }

    #[test]
    fn every_field_has_its_label_where_there_is_a_kubernetes_cluster() {
        let filled = [(name::CLUSTER, "gpu-a"), (name::CPU, "500m"), (name::VOLUMES, "/data = claim/a ro")];
        let html = html(with_kubernetes(), &filled, Vec::new());
        for (field, _) in pods::write(&engine::job::PodOptions::default()) {
            assert!(html.contains(&format!("name=\"{field}\"")), "{field}");
            assert!(html.contains(&format!("<label for=\"{field}\"")), "{field}");
        }
        assert!(html.contains("value=\"500m\"") && html.contains("/data = claim/a ro"), "{html}");
        assert!(html.contains("data-kind=\"kubernetes\"") && html.contains("data-kind=\"local\""), "{html}");
        assert!(html.contains("required; what the pods run"), "the image's hint follows the cluster");
        assert!(!html.contains("host_path"), "not offered where the cluster does not allow it");
    }

    #[test]
    fn a_site_without_one_says_so_in_their_place() {
        let html = html(Site::default(), &[], Vec::new());
        assert!(html.contains("this server has no such cluster"), "{html}");
        assert!(!html.contains("name=\"kubernetes."), "{html}");
        assert!(html.contains("the local cluster uses none"), "{html}");
    }

    #[test]
    fn what_a_cluster_lacks_is_said_before_a_job_is_sent_there() {
        let mut site = with_kubernetes();
        assert!(!html(site.clone(), &[], Vec::new()).contains("cannot do now"));
        site.troubles.push(ClusterTrouble {
            cluster: "gpu-a".to_owned(),
            kind: Some(engine::job::JobKind::RayJob),
            namespace: None,
            text: "install KubeRay".to_owned(),
        });
        let html = html(site, &[], Vec::new());
        assert!(html.contains("<b>RayJob on gpu-a<!></b>") && html.contains("install KubeRay"), "{html}");
    }

    #[test]
    fn an_error_in_a_list_stands_at_the_list() {
        let wrong = FieldError::new("kubernetes.volumes[0].source", "Line 3: the source must be a name");
        let html = html(with_kubernetes(), &[(name::CLUSTER, "gpu-a")], vec![wrong]);
        let (_, after) = html.split_once("id=\"kubernetes.volumes\"").unwrap();
        assert!(after.starts_with(" name") && html.contains("id=\"kubernetes.volumes-error\""), "{html}");
        assert!(after.contains("Line 3: the source must be a name."), "{after}");
    }

    #[test]
    fn what_is_kept_for_another_cluster_is_told() {
        let told = "is kept, and not sent";
        let kept = [(name::CLUSTER, "local"), (name::CPU, "4")];
        let page = html(with_kubernetes(), &kept, Vec::new());
        assert!(page.contains(told) && page.contains("name=\"was.kubernetes\" value=\"unsent\""), "{page}");
        assert!(!html(with_kubernetes(), &[(name::CLUSTER, "local")], Vec::new()).contains(told));
    }

    #[test]
    fn a_checkpoint_directory_on_no_volume_is_pointed_out() {
        let told = "Not on a volume: it is lost with the pod";
        let on = |volumes| {
            let filled =
                [(name::CLUSTER, "gpu-a"), (name::CHECKPOINT_DIR, "/data/run"), (name::VOLUMES, volumes)];
            html(with_kubernetes(), &filled, Vec::new()).contains(told)
        };
        assert!(on("") && on("/datasets = claim/a") && !on("/data = claim/a"));
    }
}
