-- Runs of Bisect Diagnose. `doc` is the whole run as the engine keeps it; `stop_by` is who asked to stop it, until the run has taken that.
CREATE TABLE diagnosis (
    run_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    live BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    stop_by TEXT,
    doc TEXT NOT NULL
);
CREATE INDEX diagnosis_started ON diagnosis (started_at, run_id);
CREATE UNIQUE INDEX diagnosis_job ON diagnosis (job_id, number);
-- A job has one at a time.
CREATE UNIQUE INDEX diagnosis_live ON diagnosis (job_id) WHERE live = 1;

-- The run that a job is a group of; lists leave such jobs out. The run may be gone by now, so it is no reference.
ALTER TABLE job ADD COLUMN diagnosis TEXT;
CREATE INDEX job_diagnosis ON job (diagnosis) WHERE diagnosis IS NOT NULL;
