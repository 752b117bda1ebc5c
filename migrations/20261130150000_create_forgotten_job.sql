-- Jobs that were deleted, so that each server knows what it keeps of them for gone. That a job is in no row of `job` says nothing: a database
-- that was put back from a copy does not know what came after it.
CREATE TABLE forgotten_job (
    job_id TEXT PRIMARY KEY,
    at BIGINT NOT NULL
);
