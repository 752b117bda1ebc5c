//! Runs of Bisect Diagnose as they are kept, and their groups, which lists leave out.

use engine::{
    bisect::{self, Alone, Input, Setup},
    ids::{NodeName, TaskId},
    job::PodOptions,
    record::{State, Substate},
};
use server::store::{
    Write, commit,
    diagnoses::{self, Diagnosis},
    jobs, leader, nodes, steps,
};

use crate::{
    databases::on_each_database,
    samples::{Sample, at, job_id, strike},
};

fn diagnosis(run_id: &str, n: u32) -> Diagnosis {
    let nodes = ["n1", "n2", "n3"].map(|name| NodeName::new(name).unwrap());
    let setup =
        Setup { nodes: nodes.into(), alone: Alone::TellsSome, probe_seconds: 60, accelerators_per_node: 1 };
    Diagnosis {
        run_id: run_id.to_owned(),
        job_id: job_id(n),
        task_id: None,
        by: "ann".to_owned(),
        rule: None,
        held: Vec::new(),
        cluster: "local".to_owned(),
        command: vec!["true".to_owned()],
        env: [].into(),
        working_dir: None,
        image: None,
        pods: PodOptions::default(),
        run: bisect::start(setup, at(u64::from(n))).run,
    }
}

#[tokio::test]
async fn jobs_that_may_wait_for_a_diagnosis_are_found_and_their_names_do_not_look_like_it() {
    on_each_database(async |store| {
        let mut tx = store.write().await.unwrap();
        for (n, state, substate, tail) in [
            (1, State::Recovering, Substate::Diagnosing, "diagnosing 2 nodes"),
            (2, State::Recovering, Substate::BackOff, r#""substate":"diagnosing""#),
            (3, State::Stopped, Substate::Diagnosing, ""),
            (4, State::Recovering, Substate::Diagnosing, ""),
        ] {
            let sample = Sample::new(n).state(state).substate(substate, tail);
            steps::create(&mut tx, sample.origin(), sample.kept()).await.unwrap();
        }
        diagnoses::mark(&mut tx, &job_id(4), "d1").await.unwrap();
        commit(tx).await.unwrap();
        let mut conn = store.read().await.unwrap();
        assert_eq!(diagnoses::waiting(&mut conn, 10).await.unwrap(), [job_id(1)]);
        assert_eq!(diagnoses::waiting(&mut conn, 0).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_run_is_written_by_the_leader_alone_and_a_job_has_one_at_a_time() {
    on_each_database(async |store| {
        let mut tx = store.write().await.unwrap();
        let epoch = leader::take(&mut tx, "test", at(0), at(10), true).await.unwrap().unwrap();
        for n in [1, 2, 3] {
            let sample = Sample::new(n);
            steps::create(&mut tx, sample.origin(), sample.kept()).await.unwrap();
        }
        let mut first = diagnosis("d1", 1);
        assert_eq!(diagnoses::create(&mut tx, &first).await.unwrap(), Some(1));
        assert_eq!(diagnoses::create(&mut tx, &diagnosis("d2", 1)).await.unwrap(), None, "one goes on");
        assert_eq!(diagnoses::create(&mut tx, &diagnosis("d3", 2)).await.unwrap(), Some(1));
        diagnoses::mark(&mut tx, &job_id(3), "d1").await.unwrap();
        let node = NodeName::new("n1").unwrap();
        for n in [1, 3] {
            let task = TaskId::of_attempt("sample", &job_id(n), 1);
            nodes::strike(&mut tx, &job_id(n), &strike(&node, &task, 1, 1)).await.unwrap();
        }
        commit(tx).await.unwrap();

        let mut conn = store.read().await.unwrap();
        let ids = |kept: Vec<diagnoses::Kept>| -> Vec<_> {
            kept.into_iter().map(|kept| kept.diagnosis.run_id).collect()
        };
        assert_eq!(ids(diagnoses::newest(&mut conn, None, 10).await.unwrap()), ["d3", "d1"]);
        assert_eq!(ids(diagnoses::newest(&mut conn, Some(&job_id(1)), 10).await.unwrap()), ["d1"]);
        assert_eq!(diagnoses::live(&mut conn, 10).await.unwrap().len(), 2);
        assert_eq!(diagnoses::count_of(&mut conn, &job_id(1)).await.unwrap(), 1);
        assert_eq!(diagnoses::get_one(&mut conn, "d1").await.unwrap().unwrap().diagnosis, first);
        assert_eq!(diagnoses::get_one(&mut conn, "d2").await.unwrap(), None);
        assert_eq!(diagnoses::orphans(&mut conn, 10).await.unwrap(), []);
        let page = jobs::page(&mut conn, &Default::default(), "ann").await.unwrap();
        assert_eq!(page.total, 2, "a group is no job of people");
        let runs: Vec<_> =
            page.items.iter().map(|job| (&job.job_id, job.summary.budgets.diagnostics.used)).collect();
        assert_eq!(runs, [(&job_id(2), 1), (&job_id(1), 1)]);
        assert_eq!(jobs::counts(&mut conn, "ann").await.unwrap().all, 2);
        let kept = nodes::strikes(&mut conn, "local", &node).await.unwrap();
        let jobs: Vec<_> = kept.into_iter().map(|kept| kept.job_id).collect();
        assert_eq!(jobs, [job_id(1)], "a group strikes nobody");
        drop(conn);

        let mut tx = store.write().await.unwrap();
        assert!(diagnoses::stop(&mut tx, "d1", "bob").await.unwrap());
        assert!(diagnoses::stop(&mut tx, "d1", "eve").await.unwrap());
        let kept = diagnoses::get_one(&mut tx, "d1").await.unwrap().unwrap();
        assert_eq!(kept.stop_by.as_deref(), Some("bob"), "the first who asks");
        first.run = bisect::advance(&first.run, &Input::Stop { by: "bob".to_owned() }, at(9)).run;
        let lost = diagnoses::write(&mut tx, epoch - 1, kept.generation, &first).await.unwrap();
        assert_eq!(lost, Write::NotLeader);
        let late = diagnoses::write(&mut tx, epoch, kept.generation + 1, &first).await.unwrap();
        assert_eq!(late, Write::ChangedUnderUs);
        assert_eq!(diagnoses::write(&mut tx, epoch, kept.generation, &first).await.unwrap(), Write::Done);
        assert!(!diagnoses::stop(&mut tx, "d1", "bob").await.unwrap(), "it has ended");
        assert_eq!(diagnoses::create(&mut tx, &diagnosis("d4", 1)).await.unwrap(), Some(2));
        steps::forget(&mut tx, epoch, &job_id(1), at(9)).await.unwrap();
        assert_eq!(diagnoses::get_one(&mut tx, "d1").await.unwrap(), None, "it goes with its job");
        assert_eq!(diagnoses::orphans(&mut tx, 10).await.unwrap(), [job_id(3)]);
        commit(tx).await.unwrap();
    })
    .await;
}
