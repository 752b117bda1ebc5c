-- What an entry of the history says, in one word for programs. Entries that only accompany others have none, and so have older ones.
ALTER TABLE event ADD COLUMN reason TEXT;
