-- Which server works on a request, so that a key is free again as soon as that server begins anew.
ALTER TABLE idempotency ADD COLUMN server TEXT NOT NULL DEFAULT '';
