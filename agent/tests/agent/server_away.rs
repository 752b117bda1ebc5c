//! A server that goes away, comes back, loses answers or does not know the agent.

use engine::{
    failure::{Exit, Signal as Death},
    sync::{Desired, PortOffer},
};

use crate::harness::{eventually, lives, with_server};

#[test]
fn training_goes_on_and_reports_arrive_once_and_in_order() {
    with_server(|server| async move {
        let _agent = server.bash("echo $$ >$DIR/pid; while [ ! -e $DIR/end ]; do sleep 0.02; done; exit 9");
        let launch = server.run(0).await;
        let pid: i32 = server.file("pid").await.trim().parse().unwrap();
        server.started(0).await;
        server.go_away();
        std::fs::write(server.dir().join("end"), "").unwrap();
        eventually("the program ends", || !lives(pid)).await;
        server.come_back().await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(9), false));
        server.stopped(0).await;
        let numbers: Vec<_> = server.reports().iter().map(|r| r.sequence).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let current = server.wait("the launch it runs", |k| k.current).await;
        assert_eq!(current, PortOffer { launch: 0, port: launch.master_port });
        server.run(1).await;
        server.started(1).await;
    });
}

#[test]
fn a_lost_answer_changes_nothing() {
    with_server(|server| async move {
        server.change(|known| known.lose_answers = 3);
        let mut agent = server.bash("exit 4");
        server.run(0).await;
        server.stopped(0).await;
        server.want(Desired::Exit);
        assert_eq!(agent.exit().await, 4);
        let reports = server.reports();
        assert_eq!(reports.len(), 4, "Ready, Started, Exited, Stopped: {reports:#?}");
    });
}

#[test]
fn an_exit_arrives_even_where_the_server_refuses_what_was_printed() {
    with_server(|server| async move {
        server.change(|known| known.refuse_evidence = true);
        let _agent =
            server.bash("echo 'RuntimeError: CUDA error: an illegal memory access was encountered'; exit 4");
        server.run(0).await;
        assert_eq!(server.exited(0, 0).await, (Exit::Code(4), false));
        server.stopped(0).await;
    });
}

#[test]
fn a_failed_program_waits_for_the_server_and_then_ends_with_its_own_code() {
    with_server(|server| async move {
        let mut agent = server.agent(
            &["bash", "-c", "while [ ! -e $DIR/end ]; do sleep 0.02; done; exit 9"],
            |command| {
                command.env("HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", "1");
            },
        );
        server.run(0).await;
        server.started(0).await;
        server.go_away();
        std::fs::write(server.dir().join("end"), "").unwrap();
        assert_eq!(agent.exit().await, 9);
    });
}

#[test]
fn the_rest_of_a_broken_launch_is_ended_where_nobody_answers() {
    with_server(|server| async move {
        let script = "echo $$ >$DIR/pid-$RANK; while [ ! -e $DIR/end ]; do sleep 0.02; done; [ $RANK = 1 ] && exit 6; exec sleep 1000";
        let mut agent = server.agent(&["bash", "-c", script], |command| {
            command.env("HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", "1");
        });
        server.run_with(0, |launch| (launch.world_size, launch.local_world_size) = (2, 2)).await;
        let other: i32 = server.file("pid-0").await.trim().parse().unwrap();
        server.file("pid-1").await;
        server.go_away();
        std::fs::write(server.dir().join("end"), "").unwrap();
        assert_eq!(agent.exit().await, 6);
        assert!(!lives(other));
    });
}

#[test]
fn a_forged_token_is_said_clearly_and_starts_nothing() {
    with_server(|server| async move {
        let mut agent = server.agent(&["bash", "-c", "echo x >$DIR/started"], |command| {
            command.env("HOLDFAST_AGENT_TOKEN", "forged").env("HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", "1");
        });
        server.wait("a rejection", |k| (k.rejected > 1).then_some(())).await;
        assert_eq!(agent.exit().await, 1);
        let said = agent.said();
        assert!(said.contains("rejects this replica's token"), "{said}");
        assert!(!said.contains("forged"), "{said}");
        assert!(server.reports().is_empty() && !server.dir().join("started").exists());
    });
}

#[test]
fn an_attempt_that_is_gone_is_ended() {
    with_server(|server| async move {
        let mut agent = server.bash("echo $$ >$DIR/pid; exec sleep 1000");
        server.run(0).await;
        let pid: i32 = server.file("pid").await.trim().parse().unwrap();
        server.change(|known| known.gone = true);
        assert_eq!(agent.exit().await, 143);
        assert!(!lives(pid));
    });
}

#[test]
fn reports_that_nobody_took_are_taken_from_the_next_agent() {
    with_server(|server| async move {
        let mut agent = server.agent(
            &["bash", "-c", "while [ ! -e $DIR/end ]; do sleep 0.02; done; kill -9 $$"],
            |command| {
                command.env("HOLDFAST_AGENT_OFFLINE_LIMIT_SECONDS", "1");
            },
        );
        server.run(0).await;
        server.started(0).await;
        server.go_away();
        std::fs::write(server.dir().join("end"), "").unwrap();
        assert_eq!(agent.exit().await, 137);
        server.come_back().await;
        let _next = server.bash("exit 0");
        assert_eq!(server.exited(0, 0).await, (Exit::Signal(Death::KILL), false));
        server.stopped(0).await;
    });
}
