//! What a cluster says about a job before it is made.

use serde::{Deserialize, Serialize};

/// Whether a job, or one thing that it needs, would find its place on its cluster. A look at what is there now, which promises nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// Dotted path in the create body; none where it is about the job as a whole.
    pub field: Option<String>,
    /// What it comes to.
    pub fit: Fit,
    /// The same in words, a sentence.
    // One that is `Never` lacks its subject, the field, as errors of fields do; the API's answer has it.
    pub text: String,
}

/// What a finding comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// It cannot work as it is: a job with this is refused.
    Never,
    /// It would wait as things are now. That may change, so the job is taken.
    Later,
    /// The cluster could not be asked, or Holdfast does not ask.
    NotChecked,
    /// It is there, or there is room.
    Ok,
}

impl Finding {
    /// A finding about a field.
    pub fn at(field: impl Into<String>, fit: Fit, text: impl Into<String>) -> Self {
        Self { field: Some(field.into()), fit, text: text.into() }
    }

    /// A finding about the job as a whole.
    pub fn whole(fit: Fit, text: impl Into<String>) -> Self {
        Self { field: None, fit, text: text.into() }
    }
}
