-- Where the time of each job had gone by the end of each day (days since 1970, UTC), as far as it was told: the sums from the job's start on.
-- So what a cluster's time was spent on is known for a span of days, also by jobs that are gone. `at` is of when the sums are.
CREATE TABLE job_usage (
    job_id TEXT NOT NULL,
    day BIGINT NOT NULL,
    at BIGINT NOT NULL,
    cluster TEXT NOT NULL,
    accelerators BIGINT NOT NULL,
    kept DOUBLE PRECISION NOT NULL,
    stalled DOUBLE PRECISION NOT NULL,
    starting DOUBLE PRECISION NOT NULL,
    redone DOUBLE PRECISION NOT NULL,
    diagnosing DOUBLE PRECISION NOT NULL,
    queued DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (job_id, day)
);
CREATE INDEX job_usage_day ON job_usage (day);
