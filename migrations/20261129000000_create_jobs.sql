-- Portable SQL for SQLite and Postgres: TEXT, BIGINT and DOUBLE PRECISION only. Times are microseconds, flags 0 or 1, documents JSON.

-- One row: what this installation keeps to itself.
CREATE TABLE instance (
    id BIGINT PRIMARY KEY,
    secret TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- One row: which server acts. The epoch fences every step of a leader that was replaced.
CREATE TABLE leader (
    id BIGINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    holder TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
INSERT INTO leader (id, epoch, holder, expires_at) VALUES (1, 0, '', 0);

-- What lists and the heads of pages show. The chain itself is apart, so that scans of this table stay short.
CREATE TABLE job (
    job_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    replicas BIGINT NOT NULL,
    accelerators_per_replica BIGINT NOT NULL,
    owner TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    ended_at BIGINT,
    generation BIGINT NOT NULL,
    state TEXT NOT NULL,
    needs_attention BIGINT NOT NULL,
    failure_type TEXT,
    task_restarts BIGINT NOT NULL,
    live BIGINT NOT NULL,
    search TEXT NOT NULL,
    summary TEXT NOT NULL
);
CREATE INDEX job_created ON job (created_at, job_id);
CREATE INDEX job_changed ON job (changed_at, job_id);
CREATE INDEX job_name ON job (name, job_id);
CREATE INDEX job_restarts ON job (task_restarts, created_at, job_id);
CREATE INDEX job_state ON job (state, created_at, job_id);
CREATE INDEX job_owner ON job (owner, created_at, job_id);
CREATE INDEX job_failure_type ON job (failure_type, created_at, job_id);
CREATE INDEX job_attention ON job (created_at, job_id) WHERE needs_attention = 1;
CREATE INDEX job_live ON job (job_id) WHERE live = 1;

CREATE TABLE chain (
    job_id TEXT PRIMARY KEY REFERENCES job (job_id) ON DELETE CASCADE,
    doc TEXT NOT NULL
);

CREATE TABLE attempt (
    task_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    doc TEXT NOT NULL
);
CREATE UNIQUE INDEX attempt_number ON attempt (job_id, number);

CREATE TABLE launch (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    number BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (job_id, attempt, number)
);

-- `right_answer` is a person's and is never touched when the engine writes the incident again.
CREATE TABLE incident (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    number BIGINT NOT NULL,
    id TEXT NOT NULL,
    avoids BIGINT NOT NULL,
    right_answer BIGINT,
    doc TEXT NOT NULL,
    PRIMARY KEY (job_id, attempt, number)
);
CREATE UNIQUE INDEX incident_id ON incident (id);
CREATE INDEX incident_avoids ON incident (job_id) WHERE avoids = 1;

CREATE TABLE event (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    generation BIGINT NOT NULL,
    n BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    task_id TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (job_id, generation, n)
);

-- Points as they were reported together: [[step, at, loss, samples], ...].
CREATE TABLE points (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    n BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    launch BIGINT NOT NULL,
    first_step BIGINT NOT NULL,
    total BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (job_id, n)
);

CREATE TABLE checkpoint (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    launch BIGINT NOT NULL,
    step BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (job_id, attempt, launch, step)
);

CREATE TABLE strike (
    node TEXT NOT NULL,
    incident_id TEXT NOT NULL,
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (node, incident_id)
);
CREATE INDEX strike_job ON strike (job_id);

-- Nodes that attempts keep off for as long as they are not over.
CREATE TABLE avoided (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    task_id TEXT NOT NULL,
    node TEXT NOT NULL,
    PRIMARY KEY (job_id, task_id, node)
);

-- Requests of people that no step has taken yet.
CREATE TABLE inbox (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    id TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    request TEXT NOT NULL,
    PRIMARY KEY (job_id, at, id)
);

-- The changes of the newest steps of each job, for streams that resume: [[kind, {...}], ...].
CREATE TABLE change (
    job_id TEXT NOT NULL REFERENCES job (job_id) ON DELETE CASCADE,
    generation BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (job_id, generation)
);
