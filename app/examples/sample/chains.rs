//! Jobs with their whole chains, by their ids: the design's own, and one for each way a chain can end.

use app::console::ChainView;
use engine::ids::JobId;

// The chains are those of the pages' own tests.
#[path = "../../src/samples.rs"]
pub mod samples;

/// The chain of this job.
pub fn find(id: &JobId) -> Option<ChainView> {
    let mut chain = match id.as_str() {
        "jsample00000" => samples::chain(),
        "jrunning" => samples::running(),
        "jfailfast" => samples::fail_fast(),
        "jzero" => samples::budget_zero(),
        "jstopped" => samples::stopped(),
        "jlong" => samples::long(),
        _ => return None,
    };
    chain.job_id = id.clone();
    Some(chain)
}
