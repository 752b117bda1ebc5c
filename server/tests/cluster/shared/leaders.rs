//! Two servers on one PostgreSQL; the one that leads is paused and goes on.

use serde_json::json;

use crate::{
    databases::on_new_postgres,
    harness::World,
    jobs::{incidents, is_untouched, ray, small, steps_of},
};

#[tokio::test]
async fn a_leader_that_was_paused_does_nothing_more_and_nothing_twice() {
    on_new_postgres(async |database| {
        let Some([old, new]) = World::start_two("leaders", database).await else { return };
        let patient = new.train("patient", 100_000, &[], ray(2, json!({}))).await;
        new.until(&patient, "training", |chain| steps_of(chain, 0, 0)).await;
        // It fails six seconds after its first step: then nobody leads.
        let failing = new.train("failing", 100_000, &[("FAIL_AT", "60")], small()).await;
        new.until(&failing, "training", |chain| steps_of(chain, 0, 0)).await;
        old.signal("STOP");
        new.name_means(&[&new]);
        // One is made, one stopped and one fails without it.
        let made = new.train("made", 20, &[], small()).await;
        new.post(&format!("/jobs/{patient}/stop"), &json!({})).await;
        new.until_log("this server leads").await;
        new.until(&failing, "started again in its place", |chain| steps_of(chain, 0, 1)).await;
        is_untouched(&new.until_state(&made, "succeeded").await);
        is_untouched(&new.until_state(&patient, "stopped").await);

        old.signal("CONT");
        old.until_log("this server leads no more").await;
        new.name_means(&[&old, &new]);
        // It serves; what it is asked for the other one does.
        let chain = old.stop(&failing).await;
        assert_eq!(
            (&chain["attempts_total"], incidents(&chain["attempts"][0]).len()),
            (&json!(1), 1),
            "{chain:#}"
        );
        new.kubectl(&["-n", new.namespace(), "delete", "service", "servers"]);
        new.until_nothing_is_left().await;
        for job in [&made, &patient] {
            is_untouched(&old.read(&format!("/jobs/{job}/chain")).await);
        }
    })
    .await;
}
