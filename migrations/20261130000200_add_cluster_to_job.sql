-- Which cluster a job is on, as names of nodes mean something within one only. Empty in rows from before until their next step.
ALTER TABLE job ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
-- For counts of live jobs by cluster.
CREATE INDEX job_live_cluster ON job (cluster) WHERE live = 1;
