//! What people do with nodes: put one out for every job, let one in again, let the cap work again.

use app::{
    console::{Caller, CapView, QuarantineOrder},
    error::AppError,
};
use engine::{
    chain::Request,
    ids::{JobId, NodeName, TaskId},
    job::FieldError,
    nodes::standing::{Cap, REASON_CHARS, state},
    time::Time,
};

use super::{
    Service, Wish, failed, may,
    nodes::{cap_view, find},
};
use crate::{
    clusters::{count_of, nodes_of},
    keeper,
    store::{
        self, StoreError, Write, inbox, nodes,
        wards::{self, Entry, KeptWard},
    },
};

/// The longest quarantine with an end, seconds: a year.
const LONGEST_SECONDS: u64 = 365 * 86_400;

impl Service {
    pub(super) async fn quarantine_node(
        &self,
        caller: &Caller,
        name: &NodeName,
        order: &QuarantineOrder,
    ) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        let now = self.clock.now();
        let reason = order.reason.trim();
        let errors = errors_of(reason, order.until, now);
        if !errors.is_empty() {
            return Err(AppError::Invalid { errors });
        }
        let all = self.list_nodes(caller).await?;
        let (found, node) = find(all, order.cluster.as_deref(), name)?;
        let cluster = found.cluster.clone();
        if !order.confirm && node.quarantine.is_none() {
            let mut conn = self.store.read().await.map_err(failed)?;
            let seen = self.forecast(&mut conn, &found, name).await.map_err(failed)?;
            if !seen.unable.is_empty() {
                let why = format!(
                    "{} Send it again with `confirm` to quarantine {name} all the same.",
                    seen.text()
                );
                return Err(AppError::Conflict { why });
            }
        }
        let kept = self.kept(&cluster).await?;
        let mut record = kept.ward.records.get(name).cloned().unwrap_or_default();
        record.quarantine(&caller.name, reason, order.until, now);
        let until = match order.until {
            Some(until) => format!("until {until}"),
            None => "until a person releases it".to_owned(),
        };
        let text = format!("{name} is quarantined {until}: {}", sentence(reason));
        let tasks: Vec<TaskId> = node.jobs.into_iter().map(|job| job.task_id).collect();
        let entry = Entry { by: &caller.name, text: &text, at: now };
        let mut tx = self.store.write().await.map_err(failed)?;
        let written = wards::write(&mut tx, &cluster, &kept, (name, &record), entry).await.map_err(failed)?;
        overtaken(written, name)?;
        let told = keeper::tell_jobs(&mut tx, (&cluster, name), &tasks, entry).await.map_err(failed)?;
        store::commit(tx).await.map_err(failed)?;
        tracing::info!(cluster, node = %name, by = caller.name, "a node was quarantined");
        self.after_change(&cluster, &told).await
    }

    /// Lets a node in again. The cluster need not answer for that, and no cap forbids it.
    pub(super) async fn let_in(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<(), AppError> {
        may(caller, Wish::Act)?;
        let now = self.clock.now();
        let cluster = self.cluster_of(caller, cluster, name).await?;
        let kept = self.kept(&cluster).await?;
        let mut record = kept.ward.records.get(name).cloned().unwrap_or_default();
        let mut conn = self.store.read().await.map_err(failed)?;
        let keeping_off = nodes::keeping_off(&mut conn, &cluster, name).await.map_err(failed)?;
        drop(conn);
        let marks = kept.ward.marks.iter().filter(|mark| mark.node == *name);
        let strikes = marks.filter(|mark| record.counts_from.is_none_or(|from| mark.at >= from)).count();
        let is_ready = state(&record, strikes as u32, !keeping_off.is_empty());
        if is_ready == engine::nodes::standing::NodeState::Ready {
            let why = format!("{name} is not kept out, and nothing counts against it.");
            return Err(AppError::Conflict { why });
        }
        let was_out = record.quarantine.is_some();
        record.release(now);
        let text = match was_out {
            true => format!("{name} was released. What was held against it so far counts no more."),
            false => format!("What was held against {name} so far counts no more."),
        };
        let entry = Entry { by: &caller.name, text: &text, at: now };
        let mut tx = self.store.write().await.map_err(failed)?;
        let written = wards::write(&mut tx, &cluster, &kept, (name, &record), entry).await.map_err(failed)?;
        overtaken(written, name)?;
        let id = format!("node/{cluster}/{name}");
        for job in &keeping_off {
            let request = Request::Readmit { node: name.clone() };
            match inbox::add(&mut tx, job, &id, &request, &caller.name, now).await {
                Ok(_) => {}
                Err(full @ StoreError::InboxFull { .. }) => {
                    tracing::warn!(job_id = %job, error = %full, "it goes on keeping off a node that was released");
                }
                Err(error) => return Err(failed(error)),
            }
        }
        store::commit(tx).await.map_err(failed)?;
        tracing::info!(cluster, node = %name, by = caller.name, "a node was released");
        self.after_change(&cluster, &keeping_off).await
    }

    pub(super) async fn reset_node_cap(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
    ) -> Result<CapView, AppError> {
        may(caller, Wish::Act)?;
        let cluster = match cluster {
            Some(name) => name.to_owned(),
            None => match self.site.clusters.as_slice() {
                [only] => only.name.clone(),
                many => {
                    let names: Vec<_> = many.iter().map(|known| known.name.as_str()).collect();
                    let rule = format!("is needed, as there are several: {}", names.join(", "));
                    return Err(AppError::Invalid { errors: vec![FieldError::new("cluster", rule)] });
                }
            },
        };
        let Some(known) = self.clusters.get(&cluster) else {
            return Err(AppError::NotFound { what: "cluster".to_owned(), id: cluster });
        };
        let kept = self.kept(&cluster).await?;
        let now = self.clock.now();
        let cap = Cap { reset_at: Some(now), tripped: None };
        let text = match &kept.ward.cap.tripped {
            Some(trip) => format!("The cap was reset. It had stopped the quarantine of {}.", trip.node),
            None => "The cap was reset. It had stopped nothing.".to_owned(),
        };
        let entry = Entry { by: &caller.name, text: &text, at: now };
        let mut tx = self.store.write().await.map_err(failed)?;
        let written = wards::write_cap(&mut tx, &cluster, &kept, &cap, entry).await.map_err(failed)?;
        if written != Write::Done {
            let why = "Somebody else reset the cap just now, or it stopped something. Look again.";
            return Err(AppError::Conflict { why: why.to_owned() });
        }
        store::commit(tx).await.map_err(failed)?;
        tracing::info!(cluster, by = caller.name, "the cap on quarantined nodes was reset");
        let total = nodes_of(known.as_ref()).await.ok();
        let total = total.map(|found| count_of(&found));
        let ward = self.kept(&cluster).await?.ward;
        let mut conn = self.store.read().await.map_err(failed)?;
        let history = wards::history(&mut conn, &cluster, None).await.map_err(failed)?;
        Ok(CapView { history, ..cap_view(&cluster, &self.site.nodes, &ward, total) })
    }

    /// The cluster that a node is of: the one that is named, one where something is kept of the node, else one that lists it.
    async fn cluster_of(
        &self,
        caller: &Caller,
        cluster: Option<&str>,
        name: &NodeName,
    ) -> Result<String, AppError> {
        for known in
            self.site.clusters.iter().filter(|known| cluster.is_none_or(|wanted| wanted == known.name))
        {
            if self.kept(&known.name).await?.ward.records.contains_key(name) {
                return Ok(known.name.clone());
            }
        }
        let all = self.list_nodes(caller).await?;
        Ok(find(all, cluster, name)?.0.cluster)
    }

    async fn kept(&self, cluster: &str) -> Result<KeptWard, AppError> {
        let mut conn = self.store.read().await.map_err(failed)?;
        let since = keeper::since(&self.site.nodes, self.clock.now());
        wards::read(&mut conn, cluster, since).await.map_err(failed)
    }

    /// Whoever waits on the cluster follows at once, and the jobs that are told hear it.
    async fn after_change(&self, cluster: &str, told: &[JobId]) -> Result<(), AppError> {
        told.iter().for_each(|job| self.driver.hint(job));
        if let Some(known) = self.clusters.get(cluster) {
            let mut conn = self.store.read().await.map_err(failed)?;
            let out = wards::quarantined(&mut conn, cluster).await.map_err(failed)?;
            drop(conn);
            known.keep_out(&out).await;
        }
        Ok(())
    }
}

/// What is wrong with an order.
fn errors_of(reason: &str, until: Option<Time>, now: Time) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let length = reason.chars().count();
    if length == 0 || length > REASON_CHARS {
        errors.push(FieldError::new("reason", format!("has 1 to {REASON_CHARS} characters")));
    }
    if until.is_some_and(|until| until <= now || until > now.plus_seconds(LONGEST_SECONDS)) {
        errors.push(FieldError::new("until", "lies in the future, at most a year away"));
    }
    errors
}

fn overtaken(written: Write, name: &NodeName) -> Result<(), AppError> {
    if written == Write::Done {
        return Ok(());
    }
    let why = format!("How {name} stands was changed by somebody else just now. Look again.");
    Err(AppError::Conflict { why })
}

/// A person's words with a full stop.
fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_needed_and_an_end_lies_ahead() {
        let now = Time(1_000_000);
        for (reason, until, fields) in [
            ("fan", None, vec![]),
            ("", None, vec!["reason"]),
            (&*"x".repeat(REASON_CHARS + 1), Some(now), vec!["reason", "until"]),
            ("fan", Some(now.plus_seconds(1)), vec![]),
            ("fan", Some(now.plus_seconds(LONGEST_SECONDS + 1)), vec!["until"]),
        ] {
            let found: Vec<_> = errors_of(reason, until, now).into_iter().map(|error| error.field).collect();
            assert_eq!(found, fields);
        }
    }
}
