//! Making and removing the objects of an attempt. Both can be repeated at any time and from any point on.

use engine::{ids::TaskId, job::JobKind};
use http::Request;
use k8s_openapi::api::{
    core::v1::{Pod, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::json;

use super::{
    answers::CallError,
    client::limited,
    manifest::{self, Manifest},
    names,
    seen::{JobSeen, PodSeen},
    settings::KubernetesSettings,
    world::World,
};
use crate::clusters::{ClusterError, Order};

const MAKING: &str = "creating an attempt";
const REMOVING: &str = "removing an attempt";
const TELLING: &str = "telling about an attempt";
const LOOKING: &str = "looking for an attempt";
/// Pods that are read to find out whether there are any.
const A_FEW: u32 = 16;

/// What a request to remove an attempt came upon.
#[derive(Debug)]
pub(super) struct Removal {
    /// Its job as it was before the request.
    pub found: Option<DynamicObject>,
    /// Why what keeps it could not be taken off.
    pub not_released: Option<String>,
}

/// Calls that change a cluster.
#[derive(Clone)]
pub(super) struct Hands {
    pub client: Client,
    pub settings: KubernetesSettings,
}

impl Hands {
    fn jobs(&self, kind: JobKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &names::resource(kind))
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a call whose refusal is final. That of an API server that has just started is believed only once it is ready.
    async fn believed<T, F>(&self, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        match limited(call()).await {
            Err(error) if error.may_be_early() => {
                self.is_ready().await?;
                limited(call()).await
            }
            answer => answer,
        }
    }

    /// Asks the API server whether it is ready, for which nobody needs a right of his own where that was not taken away.
    async fn is_ready(&self) -> Result<(), CallError> {
        let request = Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|why| CallError::Transport(why.to_string()))?;
        match limited(self.client.request_text(request)).await {
            Ok(_) => Ok(()),
            Err(CallError::Api(status)) if matches!(status.code, 401 | 404) => Ok(()),
            Err(CallError::Api(status)) if status.code == 403 && self.has_a_right().await => Ok(()),
            Err(CallError::Api(status)) => Err(CallError::NotReady(unready(&status.message))),
            Err(error) => Err(error),
        }
    }

    /// Whether the API server knows any right of ours. One that has just started forbids everything, `/readyz` too, until it has read
    /// who may what.
    async fn has_a_right(&self) -> bool {
        let list = ListParams::default().limit(1);
        for namespace in self.settings.namespaces.iter().take(A_FEW as usize) {
            if limited(self.pods(namespace).list(&list)).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Makes the attempt's Secret, then its job, then the Secret the job's own. `world` knows of a job from an earlier try.
    pub(super) async fn create(&self, order: &Order, world: &World) -> Result<(), ClusterError> {
        let made = manifest::of(order, &self.settings).map_err(|text| ClusterError::Refused { text })?;
        match self.make(order, &made, world).await {
            Err(ClusterError::Refused { text }) => Err(self.refused(order, &made, world, text).await),
            answer => answer,
        }
    }

    async fn make(&self, order: &Order, made: &Manifest, world: &World) -> Result<(), ClusterError> {
        self.create_secret(order, made).await?;
        let job = self.create_job(order, made).await?;
        // Known from now on, whatever becomes of the rest.
        world.meet_job(job.clone());
        self.own_secret(order, made, &job).await
    }

    /// What follows from a refusal: that of a repeated try says nothing of what the one before has made.
    async fn refused(&self, order: &Order, made: &Manifest, world: &World, text: String) -> ClusterError {
        let (kind, task) = (order.spec.kind, &order.plan.task_id);
        let found = limited(self.jobs(kind, &made.namespace).get_opt(task.as_str())).await;
        let goes_on = match found {
            Ok(found) => found.is_some_and(|found| self.is_what_was_ordered(&found, &made.job, task)),
            Err(CallError::Api(status)) if status.code == 403 => world.is_there(task),
            Err(error) => return error.unreachable(&self.settings, kind, MAKING),
        };
        if goes_on {
            let source = anyhow::anyhow!("{text}");
            return ClusterError::Unreachable { cluster: self.settings.name.clone(), doing: MAKING, source };
        }
        // Nothing will ever own it.
        if let Err(error) = self.delete_secret(&made.namespace, kind, task).await {
            tracing::warn!(task_id = %task, %error, "could not remove the Secret of a refused attempt");
        }
        ClusterError::Refused { text }
    }

    async fn create_secret(&self, order: &Order, made: &Manifest) -> Result<(), ClusterError> {
        let failed =
            |error: CallError| error.of_creation(&self.settings, order.spec.kind, order.plan.number, MAKING);
        let secrets = self.secrets(&made.namespace);
        let params = PostParams::default();
        let error = match self.believed(|| secrets.create(&params, &made.secret)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_already_exists() => error,
            Err(error) => return Err(failed(error)),
        };
        let name = names::secret_of(&order.plan.task_id);
        match limited(secrets.get_opt(&name)).await.map_err(failed)? {
            Some(found) if !self.is_ours(found.labels(), &order.plan.task_id) => {
                Err(self.conflict("Secret", &name, &made.namespace))
            }
            Some(found) if found.data == made.secret.data => Ok(()),
            Some(found) => {
                // From a database that has been replaced since: its tokens open nothing.
                let params = this_one(found.uid(), DeleteParams::default());
                absent_is_fine(limited(secrets.delete(&name, &params)).await).map_err(failed)?;
                Err(error.unreachable(&self.settings, order.spec.kind, MAKING))
            }
            None => Err(error.unreachable(&self.settings, order.spec.kind, MAKING)),
        }
    }

    async fn create_job(&self, order: &Order, made: &Manifest) -> Result<JobSeen, ClusterError> {
        let kind = order.spec.kind;
        let failed = |error: CallError| error.of_creation(&self.settings, kind, order.plan.number, MAKING);
        let jobs = self.jobs(kind, &made.namespace);
        let name = order.plan.task_id.as_str();
        let params = PostParams::default();
        let object = match self.believed(|| jobs.create(&params, &made.job)).await {
            Ok(object) => object,
            Err(error) if error.is_already_exists() => {
                match limited(jobs.get_opt(name)).await.map_err(failed)? {
                    Some(found) if self.is_what_was_ordered(&found, &made.job, &order.plan.task_id) => found,
                    Some(_) => return Err(self.conflict(&names::resource(kind).kind, name, &made.namespace)),
                    None => return Err(error.unreachable(&self.settings, kind, MAKING)),
                }
            }
            Err(error) => return Err(failed(error)),
        };
        JobSeen::of(kind, &object).ok_or_else(|| ClusterError::Refused {
            text: format!(
                "the cluster changed the labels of {} {name}; see its admission webhooks",
                names::resource(kind).kind
            ),
        })
    }

    /// Ties the Secret to the job, so that it goes when the job does, whoever removes that.
    async fn own_secret(&self, order: &Order, made: &Manifest, job: &JobSeen) -> Result<(), ClusterError> {
        let resource = names::resource(order.spec.kind);
        let owner = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": order.plan.task_id,
            "uid": job.uid,
        });
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        let name = names::secret_of(&order.plan.task_id);
        let secrets = self.secrets(&made.namespace);
        let patched = limited(secrets.patch(&name, &PatchParams::default(), &patch)).await;
        // Not refused whatever the answer is: the job runs already.
        absent_is_fine(patched).map_err(|error| error.unreachable(&self.settings, order.spec.kind, MAKING))
    }

    /// The UID of an attempt's object in a namespace, if it is there.
    pub(super) async fn find(
        &self,
        namespace: &str,
        kind: JobKind,
        task: &TaskId,
    ) -> Result<Option<String>, ClusterError> {
        let found = limited(self.jobs(kind, namespace).get_opt(task.as_str())).await;
        let found = found.map_err(|error| error.unreachable(&self.settings, kind, TELLING))?;
        Ok(found.filter(|job| self.is_ours(job.labels(), task)).and_then(|job| job.uid()))
    }

    /// Makes an event. One of its name that is there already says the same.
    pub(super) async fn tell(&self, kind: JobKind, event: &Event) -> Result<(), ClusterError> {
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams::default();
        match self.believed(|| events.create(&params, event)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(error.of_creation(&self.settings, kind, 1, TELLING)),
        }
    }

    /// Asks for the removal of all objects of an attempt in a namespace. Their pods go in the background; `force` does not wait for
    /// them to end by themselves. A RayJob stays until its cluster and all its pods are gone: so that the next attempt's cluster never
    /// is beside them, and nobody makes pods again that were removed by force.
    pub(super) async fn delete(
        &self,
        namespace: &str,
        kind: JobKind,
        task: &TaskId,
        force: bool,
    ) -> Result<Removal, ClusterError> {
        let failed = |error: CallError| error.unreachable(&self.settings, kind, REMOVING);
        let jobs = self.jobs(kind, namespace);
        let params = match kind {
            JobKind::PyTorchJob => DeleteParams::background(),
            JobKind::RayJob => DeleteParams::foreground(),
        };
        let found = limited(jobs.get_opt(task.as_str())).await.map_err(failed)?;
        let found = found.filter(|found| self.is_ours(found.labels(), task));
        let mut not_released = None;
        if let Some(found) = &found {
            let params = this_one(found.uid(), params);
            let answer = limited(jobs.delete(task.as_str(), &params)).await.map(|answer| answer.left());
            match answer {
                Ok(Some(ending)) if force => {
                    not_released = self.release(&jobs, &ending).await.map_err(failed)?;
                }
                answer => absent_is_fine(answer).map_err(failed)?,
            }
        }
        self.delete_secret(namespace, kind, task).await?;
        if force {
            let params = DeleteParams::background().grace_period(0);
            for selector in names::exactly_of_task(&self.settings, task) {
                let list = ListParams::default().labels(&selector);
                absent_is_fine(limited(self.pods(namespace).delete_collection(&params, &list)).await)
                    .map_err(failed)?;
            }
        }
        Ok(Removal { found, not_released })
    }

    /// Takes KubeRay's finalizer off a RayJob that is being removed: where KubeRay is away nobody else ever would. All it is for is to
    /// stop the driver first, which ends with its pod. Answers why it may not.
    async fn release(
        &self,
        jobs: &Api<DynamicObject>,
        ending: &DynamicObject,
    ) -> Result<Option<String>, CallError> {
        let (kept, released): (Vec<_>, Vec<_>) =
            ending.finalizers().iter().partition(|name| *name != names::RAY_FINALIZER);
        if released.is_empty() {
            return Ok(None);
        }
        // Only if it is still as it was read: KubeRay may be there after all. Then the next try finds what there is to do.
        let patch = json!({
            "metadata": { "finalizers": kept, "resourceVersion": ending.resource_version() },
        });
        let name = ending.name_any();
        match limited(jobs.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Err(CallError::Api(status)) if status.code == 403 => Ok(Some(format!(
                "KubeRay has not released RayJob {name}, and its finalizer {} may not be taken off ({}); start KubeRay, or grant patch on rayjobs as docs/kubernetes.md says under Rights",
                names::RAY_FINALIZER,
                status.message
            ))),
            answer => absent_is_fine(answer).map(|()| None),
        }
    }

    /// Ends pods at once, without waiting for a kubelet that is not heard.
    pub(super) async fn end_pods(
        &self,
        namespace: &str,
        kind: JobKind,
        pods: &[PodSeen],
    ) -> Result<(), ClusterError> {
        for pod in pods.iter().take(A_FEW as usize) {
            let params = this_one(Some(pod.uid.clone()), DeleteParams::default().grace_period(0));
            absent_is_fine(limited(self.pods(namespace).delete(&pod.name, &params)).await)
                .map_err(|error| error.unreachable(&self.settings, kind, REMOVING))?;
        }
        Ok(())
    }

    async fn delete_secret(&self, namespace: &str, kind: JobKind, task: &TaskId) -> Result<(), ClusterError> {
        let failed = |error: CallError| error.unreachable(&self.settings, kind, REMOVING);
        let (secrets, name) = (self.secrets(namespace), names::secret_of(task));
        let Some(found) = limited(secrets.get_opt(&name)).await.map_err(failed)? else { return Ok(()) };
        if !self.is_ours(found.labels(), task) {
            return Ok(());
        }
        let params = this_one(found.uid(), DeleteParams::default());
        absent_is_fine(limited(secrets.delete(&name, &params)).await).map_err(failed)
    }

    /// What there really is of an attempt in a namespace: asked for now, not remembered.
    pub(super) async fn look(
        &self,
        namespace: &str,
        kind: JobKind,
        task: &TaskId,
    ) -> Result<(Option<JobSeen>, Vec<PodSeen>), ClusterError> {
        let failed = |error: CallError| error.unreachable(&self.settings, kind, LOOKING);
        let job = self.look_at_job(namespace, kind, task).await?;
        let list = ListParams::default().labels(&names::of_task(&self.settings, task)).limit(A_FEW);
        let pods = limited(self.pods(namespace).list(&list)).await.map_err(failed)?;
        let ours = pods.items.iter().filter(|pod| self.is_ours(pod.labels(), task));
        Ok((job, ours.filter_map(PodSeen::of).collect()))
    }

    /// An attempt's object in a namespace as it is now.
    pub(super) async fn look_at_job(
        &self,
        namespace: &str,
        kind: JobKind,
        task: &TaskId,
    ) -> Result<Option<JobSeen>, ClusterError> {
        let found = limited(self.jobs(kind, namespace).get_opt(task.as_str())).await;
        let found = found.map_err(|error| error.unreachable(&self.settings, kind, LOOKING))?;
        let ours = found.filter(|job| self.is_ours(job.labels(), task));
        Ok(ours.and_then(|job| JobSeen::of(kind, &job)))
    }

    fn is_ours(&self, labels: &std::collections::BTreeMap<String, String>, task: &TaskId) -> bool {
        let is_of_task = labels.get(names::TASK).is_some_and(|found| found == task.as_str());
        is_of_task && names::is_of_cluster(&self.settings, labels)
    }

    fn is_what_was_ordered(&self, found: &DynamicObject, wanted: &DynamicObject, task: &TaskId) -> bool {
        let hash = |object: &DynamicObject| object.annotations().get(names::SPEC_HASH).cloned();
        self.is_ours(found.labels(), task) && hash(found) == hash(wanted)
    }

    fn conflict(&self, kind: &str, name: &str, namespace: &str) -> ClusterError {
        let text = format!(
            "there is a {kind} {name} in namespace {namespace} already, and it is not what this attempt asks for; remove it, or give the job another name"
        );
        ClusterError::Refused { text }
    }
}

/// What keeps an API server from being ready. It lists all its checks, a line each, and marks those that fail.
fn unready(words: &str) -> String {
    let failing: Vec<_> = words.lines().filter(|line| line.starts_with("[-]")).collect();
    if failing.is_empty() { words.to_owned() } else { failing.join(", ") }
}

/// Deletes the object that was read, not one of the same name that was made since.
fn this_one(uid: Option<String>, params: DeleteParams) -> DeleteParams {
    params.preconditions(Preconditions { uid, resource_version: None })
}

fn absent_is_fine<T>(answer: Result<T, CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "tests/act.rs"]
mod tests;
