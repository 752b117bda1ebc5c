//! What an incident cost, and where the time of a job went.
