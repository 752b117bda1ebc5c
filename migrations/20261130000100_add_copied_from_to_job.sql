-- The job whose settings this one was made from. It may be gone by now, so it is no reference.
ALTER TABLE job ADD COLUMN copied_from TEXT;
