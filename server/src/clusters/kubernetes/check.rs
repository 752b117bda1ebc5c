//! What a cluster has now of what a job needs, asked before the job is made.
//!
//! An object that is named and is not there, and all else that cannot work, is the job's fault and refuses it. What may change, above
//! all room, is only told. Whatever cannot be asked, for want of a right, of room or of an answer, is told as that and holds up nobody: all
//! questions together have [`WHOLE`].

use std::{collections::BTreeSet, time::Duration};

use engine::{
    job::{Finding, Fit, JobSpec},
    words,
};
use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, ResourceQuota, ServiceAccount},
        scheduling::v1::PriorityClass,
    },
    apimachinery::pkg::apis::meta::v1::APIGroup,
};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    act::Hands,
    answers::CallError,
    health::Watched,
    room,
    wants::{self, Kind, Named, Wants},
    world::World,
};

/// How long all questions together may take: somebody waits for the answer.
const WHOLE: Duration = Duration::from_secs(5);
/// Questions about one job at a time.
const AT_A_TIME: usize = 8;
/// Questions about all jobs at a time: whoever checks often must not take the API server's time from attempts.
pub(super) const QUESTIONS: usize = 16;
/// Quotas of a namespace that are looked at.
const QUOTAS: u32 = 64;
/// Kueue's API.
const KUEUE: &str = "kueue.x-k8s.io";

/// What there is now of what a job needs, the worst first.
pub(super) async fn job(hands: &Hands, world: &World, questions: &Semaphore, spec: &JobSpec) -> Vec<Finding> {
    let wants = match wants::of(spec, &hands.settings) {
        Ok(wants) => wants,
        Err(finding) => return vec![finding],
    };
    let now = Instant::now();
    if let Some(why) = world.health.is_away(now) {
        let text = format!("Nothing was checked on the cluster, which cannot be reached now: {why}.");
        return vec![Finding::whole(Fit::NotChecked, text)];
    }
    let asker = Asker { client: hands.client.clone(), wants: &wants, questions, until: now + WHOLE };
    let named: Vec<_> = wants.named.iter().map(|named| asker.named(named)).collect();
    let named = stream::iter(named).buffered(AT_A_TIME);
    let (namespace, named, quotas) =
        futures::join!(asker.namespace(), named.collect::<Vec<_>>(), asker.quotas());
    if let Some(missing) = namespace {
        // Nothing can be in it either.
        return vec![missing];
    }
    let mut findings: Vec<_> = named.into_iter().chain(quotas).chain(not_asked(&wants)).collect();
    findings.extend(match world.health.blind_to(&Watched::Nodes, now) {
        Some(why) => vec![Finding::whole(Fit::NotChecked, format!("Room was not checked: {why}."))],
        None => {
            let (nodes, held) = world.nodes();
            room::nodes(&wants, &nodes, &held)
        }
    });
    findings.sort_by_key(|finding| finding.fit);
    findings
}

/// Secrets: whoever may look for one may read it, and Holdfast reads none of a job's. And images, which only nodes pull.
fn not_asked(wants: &Wants) -> impl Iterator<Item = Finding> {
    let told = |what: &str, names: &BTreeSet<String>, why: &str| {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (ending, verb) = if names.len() == 1 { ("", "was") } else { ("s", "were") };
        let text = format!("{what}{ending} {} {verb} not checked: {why}", words::list(&names));
        (!names.is_empty()).then(|| Finding::whole(Fit::NotChecked, text))
    };
    let secrets = "Holdfast reads no Secrets of jobs. The attempt says so where one is missing.";
    let images = "only nodes pull images, when pods start. The attempt says so where that fails.";
    [told("Secret", &wants.secrets, secrets), told("Image", &wants.images, images)].into_iter().flatten()
}

/// Asks about one job.
struct Asker<'a> {
    client: Client,
    wants: &'a Wants,
    /// Room for questions, of all jobs together.
    questions: &'a Semaphore,
    until: Instant,
}

impl Asker<'_> {
    /// The answer, if it comes in time.
    async fn ask<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
        let call = async {
            // It is never closed.
            let _place = self.questions.acquire().await;
            call.await
        };
        match tokio::time::timeout_at(self.until, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(CallError::TooLong(WHOLE)),
        }
    }

    /// That the namespace is not there; else nothing is to be said.
    async fn namespace(&self) -> Option<Finding> {
        let namespace = &self.wants.namespace;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = self.ask(namespaces.get_metadata_opt(namespace)).await;
        // Without the right to ask, the other answers tell.
        matches!(found, Ok(None)).then(|| {
            let why =
                format!("is not there: the cluster has no namespace {namespace}; make it, or name another");
            Finding::at("kubernetes.namespace", Fit::Never, why)
        })
    }

    async fn named(&self, named: &Named) -> Finding {
        let answer = match named.kind {
            Kind::Claim => self.claim(named).await,
            Kind::ConfigMap => {
                let found = self.ask(self.here::<ConfigMap>().get_metadata_opt(&named.name)).await;
                found.map(|found| found.map(|_| there(named)))
            }
            Kind::ServiceAccount => {
                let found = self.ask(self.here::<ServiceAccount>().get_metadata_opt(&named.name)).await;
                found.map(|found| found.map(|_| there(named)))
            }
            Kind::PriorityClass => {
                let classes: Api<PriorityClass> = Api::all(self.client.clone());
                let found = self.ask(classes.get_metadata_opt(&named.name)).await;
                found.map(|found| found.map(|_| there(named)))
            }
            Kind::Queue => self.queue(named).await,
        };
        let word = named.kind.word();
        match answer {
            Ok(Some(finding)) => finding,
            Ok(None) => {
                let place = match named.kind {
                    Kind::PriorityClass => "the cluster".to_owned(),
                    _ => format!("namespace {}", self.wants.namespace),
                };
                let why = format!(
                    "is not there: {place} has no {word} {}; make it first, or name another",
                    named.name
                );
                Finding::at(&named.field, Fit::Never, why)
            }
            Err(error) => {
                let text = format!("{word} {} was not checked: {}.", named.name, why_not(&error));
                Finding::at(&named.field, Fit::NotChecked, text)
            }
        }
    }

    fn here<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.wants.namespace)
    }

    /// A claim, and whether all who mount it can have it.
    async fn claim(&self, named: &Named) -> Result<Option<Finding>, CallError> {
        let found = self.ask(self.here::<PersistentVolumeClaim>().get_opt(&named.name)).await?;
        Ok(found.map(|claim| {
            let replicas = self.wants.replicas_with_claim(&named.name);
            let modes = claim.spec.and_then(|spec| spec.access_modes).unwrap_or_default();
            let only = |mode: &str| !modes.is_empty() && modes.iter().all(|one| one == mode) && replicas > 1;
            let name = &named.name;
            if claim.metadata.deletion_timestamp.is_some() {
                let text = format!("PersistentVolumeClaim {name} is being deleted.");
                Finding::at(&named.field, Fit::Later, text)
            } else if only("ReadWriteOncePod") {
                let why = format!(
                    "is a claim that one pod alone can have: {name} is ReadWriteOncePod, and {} mount it",
                    words::count(replicas, "replica")
                );
                Finding::at(&named.field, Fit::Never, why)
            } else if only("ReadWriteOnce") {
                let text = format!(
                    "PersistentVolumeClaim {name} is ReadWriteOnce, which one node at a time can have: replicas on other nodes would wait."
                );
                Finding::at(&named.field, Fit::Later, text)
            } else {
                there(named)
            }
        }))
    }

    /// Kueue's queue. Its API has two versions in use, so the cluster says which.
    async fn queue(&self, named: &Named) -> Result<Option<Finding>, CallError> {
        let request = Request::get(format!("/apis/{KUEUE}")).body(Vec::new());
        let request = request.map_err(|why| CallError::Transport(why.to_string()))?;
        let group: APIGroup = match self.ask(self.client.request(request)).await {
            Err(error) if error.is_not_found() => {
                let text =
                    format!("LocalQueue {} was not checked: the cluster does not know Kueue.", named.name);
                return Ok(Some(Finding::at(&named.field, Fit::NotChecked, text)));
            }
            group => group?,
        };
        let version = group.preferred_version.or_else(|| group.versions.into_iter().next());
        let version = version.map_or("v1beta1".to_owned(), |version| version.version);
        let kind = GroupVersionKind::gvk(KUEUE, &version, "LocalQueue");
        let resource = ApiResource::from_gvk_with_plural(&kind, "localqueues");
        let queues: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.wants.namespace, &resource);
        let found = self.ask(queues.get_opt(&named.name)).await?;
        Ok(found.map(|queue| match idle(&queue) {
            Some(why) => {
                let text = format!("LocalQueue {} takes no jobs now: {why}", named.name);
                Finding::at(&named.field, Fit::Later, text)
            }
            None => there(named),
        }))
    }

    async fn quotas(&self) -> Vec<Finding> {
        let list = ListParams::default().limit(QUOTAS);
        match self.ask(self.here::<ResourceQuota>().list(&list)).await {
            Ok(quotas) => quotas.items.iter().map(|quota| room::quota(quota, self.wants)).collect(),
            Err(error) => {
                let text = format!("Quotas were not checked: {}.", why_not(&error));
                vec![Finding::whole(Fit::NotChecked, text)]
            }
        }
    }
}

fn there(named: &Named) -> Finding {
    Finding::at(&named.field, Fit::Ok, format!("{} {} is there.", named.kind.word(), named.name))
}

/// Why a queue takes nothing, in Kueue's words.
fn idle(queue: &DynamicObject) -> Option<String> {
    let conditions = queue.data.pointer("/status/conditions")?.as_array()?;
    let is_idle = |one: &&serde_json::Value| one["type"] == "Active" && one["status"] == "False";
    let said = conditions.iter().find(is_idle)?;
    Some(said["message"].as_str().unwrap_or("it is not active").to_owned())
}

fn why_not(error: &CallError) -> String {
    match error {
        CallError::Api(status) if status.code == 403 => "Holdfast's account may not ask for it".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "tests/check.rs"]
mod tests;
