-- How a node stands: its quarantine, its time on trial, from when strikes count. One row for each node that ever had any of it;
-- the strikes themselves stay with their incidents. `generation` lets one of two writers win.
CREATE TABLE node_record (
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    generation BIGINT NOT NULL,
    quarantined BIGINT NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (cluster, node)
);
CREATE INDEX node_record_quarantined ON node_record (cluster, node) WHERE quarantined = 1;

-- The cap on quarantined nodes of a cluster: what it stopped, and when a person reset it.
CREATE TABLE node_cap (
    cluster TEXT PRIMARY KEY,
    generation BIGINT NOT NULL,
    doc TEXT NOT NULL
);

-- Who changed how a node stands, and why; of the cap where `node` is empty. Never replaced.
CREATE TABLE node_event (
    cluster TEXT NOT NULL,
    node TEXT NOT NULL,
    generation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    by_whom TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (cluster, node, generation)
);

-- Strikes of the time that counts are read again and again.
CREATE INDEX strike_at ON strike (at);
