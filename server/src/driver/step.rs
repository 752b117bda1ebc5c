//! One step of a chain: fold what is new into it, then keep all of that in one transaction.

use app::console::CheckpointMark;
use engine::{
    chain::{Chain, Input, advance},
    ids::{JobId, TaskId},
    progress::as_step,
    record::Record,
    sync::ReportBody,
    time::Time,
};

use super::Failpoint;
use crate::{
    clusters::Note,
    store::{
        self, Store, StoreError, Write, checkpoints,
        inbox::{self, Waiting},
        steps::{self, Head, Kept},
    },
};

/// A chain with everything that several inputs made of it, not kept yet.
pub(super) struct Draft {
    pub(super) chain: Chain,
    records: Vec<Record>,
    checkpoints: Vec<(TaskId, u32, CheckpointMark)>,
    changed: bool,
}

impl Draft {
    /// Advances a chain by inputs in their order.
    pub(super) fn of<'a>(chain: &Chain, inputs: impl IntoIterator<Item = &'a Input>, now: Time) -> Self {
        let mut draft =
            Self { chain: chain.clone(), records: Vec::new(), checkpoints: Vec::new(), changed: false };
        for input in inputs {
            let step = advance(&draft.chain, input, now);
            draft.checkpoints.extend(saved(&draft.chain, &step.chain, input));
            // A timer that came due is kept even where only the state that people see follows from it, or it would be due again.
            draft.changed |= *input == Input::Tick
                || !step.records.is_empty()
                || !step.chain.is_same_but_for_time(&draft.chain);
            draft.records.extend(step.records);
            // The step's effects are read from the chain itself, which has them until they are answered.
            draft.chain = step.chain;
        }
        draft
    }

    /// What it has to be told once it is kept as `generation`. Records are numbered as they are kept.
    pub(super) fn notes(&self, generation: i64) -> impl Iterator<Item = Note> {
        let spec = self.chain.spec();
        self.records.iter().zip(0..).filter_map(move |(record, n)| match record {
            Record::Event(event) => Note::of(spec, (generation, n), event.clone()),
            _ => None,
        })
    }

    /// There is nothing to keep: the inputs were known already.
    pub(super) const fn is_empty(&self) -> bool {
        !self.changed
    }

    /// Keeps it on top of generation `seen`, and removes the requests it has taken, all or nothing.
    pub(super) async fn keep(
        &self,
        store: &Store,
        epoch: i64,
        seen: i64,
        taken: &[Waiting],
        now: Time,
    ) -> Result<Write, StoreError> {
        let job_id = self.chain.job_id();
        let head = Head::of(&self.chain, now);
        let kept = Kept { chain: &self.chain, head: &head, records: &self.records, now };
        let mut tx = store.write().await?;
        let written = steps::write(&mut tx, epoch, seen, kept).await?;
        if written != Write::Done {
            return Ok(written);
        }
        for (task_id, launch, mark) in &self.checkpoints {
            checkpoints::keep(&mut tx, job_id, task_id, *launch, mark).await?;
        }
        for request in taken {
            inbox::remove(&mut tx, job_id, request).await?;
        }
        Failpoint::BeforeCommit.pass();
        store::commit(tx).await?;
        Failpoint::AfterCommit.pass();
        Ok(Write::Done)
    }
}

/// The checkpoint that a report tells of, if the chain took the report just now.
fn saved(before: &Chain, after: &Chain, input: &Input) -> Option<(TaskId, u32, CheckpointMark)> {
    let Input::Report { task_id, replica, report } = input else { return None };
    let ReportBody::Checkpoint { event } = &report.body else { return None };
    let is_new = before.acknowledged(task_id, replica) < report.sequence
        && after.acknowledged(task_id, replica) >= report.sequence;
    let step = event.step.and_then(as_step).filter(|_| is_new && !event.loaded)?;
    Some((task_id.clone(), report.launch, CheckpointMark { step, at: event.at }))
}

/// Removes a job that is forgotten with all its rows.
pub(super) async fn forget(
    store: &Store,
    epoch: i64,
    job_id: &JobId,
    now: Time,
) -> Result<Write, StoreError> {
    let mut tx = store.write().await?;
    let written = steps::forget(&mut tx, epoch, job_id, now).await?;
    store::commit(tx).await?;
    Ok(written)
}
