//! A job from a pasted manifest.

use app::{
    console::{Console, JobView},
    error::AppError,
};
use axum::{Extension, extract::State, response::Response};
use engine::job::{FaultToleranceDraft, FieldError, JobDraft, Manifest, Override, PodOptions};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{Refusals, jobs::made};
use crate::{
    web::{WebState, extract::ApiJson, idempotent::Mark, problem::Problem, sessions::Asks},
    yaml,
};

/// Where a create body has the object.
const IN_THE_BODY: &str = "kubernetes.manifest";

/// A pasted object with what it cannot say.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Import {
    /// A PyTorchJob or a RayJob: as a text, which is YAML or JSON, or as an object; at most 256 KiB. It is kept with all its fields; what is read from it
    /// is judged as in the create body.
    #[schema(value_type = Value)]
    manifest: Value,
    /// Shown name; the object's where absent.
    name: Option<String>,
    /// A cluster of Kubernetes; the first configured one where absent.
    cluster: Option<String>,
    /// Where the program saves, an absolute path; the program finds it in `HOLDFAST_CHECKPOINT_DIR`.
    checkpoint_dir: Option<String>,
    /// The Advanced Options.
    fault_tolerance: FaultToleranceDraft,
}

/// The job and what is not as its manifest says.
#[derive(Debug, Serialize, ToSchema)]
pub struct Imported {
    /// The job.
    #[serde(flatten)]
    job: JobView,
    /// What every attempt has in another way than the manifest says, and why.
    overridden: Vec<Override>,
}

/// Creates a job from a manifest; its first attempt is submitted at once. Errors name the place in the manifest.
#[utoipa::path(post, operation_id = "import_job", path = "/api/v1/jobs:import", tag = "jobs", request_body = Import,
    responses((status = 201, body = Imported, headers(("Location" = String))), Refusals))]
pub async fn create(
    State(state): State<WebState>,
    Asks(caller): Asks,
    mark: Option<Extension<Mark>>,
    ApiJson(import): ApiJson<Import>,
) -> Result<Response, Problem> {
    let manifest = Manifest::from(object(import.manifest)?);
    let overridden = manifest.overrides();
    let draft = JobDraft {
        name: import.name.unwrap_or_default(),
        cluster: import.cluster,
        checkpoint_dir: import.checkpoint_dir,
        kubernetes: PodOptions { manifest: Some(manifest), ..PodOptions::default() },
        fault_tolerance: import.fault_tolerance,
        ..JobDraft::default()
    };
    let mark = mark.map(|Extension(Mark(mark))| mark);
    let id = state.service.create_job(&caller, &draft, None, mark).await.map_err(in_manifest)?;
    let job = state.service.job(&caller, &id).await?;
    Ok(made(&id, Imported { job, overridden }))
}

/// The object that was sent, as a text or as itself.
fn object(sent: Value) -> Result<Value, Problem> {
    let wrong = |why: String| Problem::invalid(vec![FieldError::new("manifest", why)]);
    match sent {
        Value::String(text) => yaml::read(&text).map_err(wrong),
        object @ Value::Object(_) => Ok(object),
        _ => Err(wrong(
            "must be a PyTorchJob or a RayJob, as a text of YAML or JSON or as an object".to_owned(),
        )),
    }
}

/// Fields of the create body are named where this request has them.
fn in_manifest(error: AppError) -> Problem {
    match error {
        AppError::Invalid { mut errors } => {
            for error in &mut errors {
                if let Some(place) = error.field.strip_prefix(IN_THE_BODY) {
                    error.field = format!("manifest{place}");
                }
            }
            Problem::invalid(errors)
        }
        other => other.into(),
    }
}
