//! Bisect Diagnose.

use engine::{ids::JobId, time::Time};
use leptos::prelude::*;

use crate::{
    console::{DiagnosisDetail, DiagnosisPlan, DiagnosisView, Posted},
    error::AppError,
    server_fns::encoding::Json,
};

#[cfg(feature = "ssr")]
use super::{Scope, scope};
#[cfg(feature = "ssr")]
use crate::console::DiagnosisDraft;

/// All runs, and when they were read.
#[server(prefix = "/sfn", endpoint = "list_diagnoses", input = Json, output = Json)]
pub async fn list_diagnoses() -> Result<(Vec<DiagnosisView>, Time), AppError> {
    let Scope { console, caller } = scope()?;
    console.diagnoses(&caller, None).await.map(|runs| (runs, console.now()))
}

/// One run.
#[server(prefix = "/sfn", endpoint = "get_diagnosis", input = Json, output = Json)]
pub async fn get_diagnosis(run_id: String) -> Result<DiagnosisDetail, AppError> {
    let Scope { console, caller } = scope()?;
    console.diagnosis(&caller, &run_id).await
}

/// What a diagnosis of a job would take, and what was wrong with one that was asked for just now.
#[server(prefix = "/sfn", endpoint = "plan_diagnosis", input = Json, output = Json)]
pub async fn plan_diagnosis(id: JobId) -> Result<(DiagnosisPlan, Option<Posted>), AppError> {
    let Scope { console, caller } = scope()?;
    let plan = console.diagnosis_plan(&caller, &id, &DiagnosisDraft::default()).await?;
    Ok((plan, use_context::<Posted>()))
}
