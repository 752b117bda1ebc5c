//! Forms without their looks: what was typed, what it means and what is wrong with it. Used by the server that
//! receives a post and by the browser that checks while one types.

pub mod jobs_query;
pub mod lines;
pub mod manifest;
pub mod new_job;
pub mod numbers;
pub mod pasted;
pub mod pods;
pub mod review;
pub mod switches;
pub mod typed;
