-- Stacks of processes that stood still, each as it was read last in its launch. An incident finds those of its launch.
CREATE TABLE rank_stack (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    launch BIGINT NOT NULL,
    process BIGINT NOT NULL,
    replica TEXT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (job_id, attempt, launch, process)
);
