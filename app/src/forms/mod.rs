//! Forms without their looks: what was typed, what it means and what is wrong with it. Used by the server that
//! receives a post and by the browser that checks while one types.

pub mod jobs_query;
