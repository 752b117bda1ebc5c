-- People and programs that may use the console, and answers kept for repeated requests.
-- Times are microseconds since 1970 UTC; secrets are kept as hashes only.
CREATE TABLE account (
    name TEXT NOT NULL PRIMARY KEY,
    password_hash TEXT NOT NULL, -- argon2id, as a PHC string
    created_at BIGINT NOT NULL
);

CREATE TABLE session (
    id_hash TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the cookie's value
    account TEXT NOT NULL REFERENCES account (name) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX session_expires_at ON session (expires_at);

CREATE TABLE api_token (
    token_hash TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the token
    account TEXT NOT NULL REFERENCES account (name) ON DELETE CASCADE,
    name TEXT NOT NULL, -- what it is for
    created_at BIGINT NOT NULL
);

-- The answer to a POST that carried an Idempotency-Key; status 0 while the first request is being worked on.
CREATE TABLE idempotency (
    caller TEXT NOT NULL,
    route TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    status BIGINT NOT NULL,
    content_type TEXT NOT NULL,
    location TEXT,
    body TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (caller, route, idempotency_key)
);
CREATE INDEX idempotency_at ON idempotency (at);
