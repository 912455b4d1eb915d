-- The table of Holdfast's locks. Programs that may not create tables need SELECT, INSERT and UPDATE on it.
CREATE TABLE IF NOT EXISTS holdfast_locks (
	name text COLLATE "C" PRIMARY KEY, -- zero bytes escaped
	token bigint NOT NULL, -- of the last grant
	holder text NOT NULL, -- SHA-256 of the lease ID in hexadecimal digits; empty if nobody holds the lock
	owner text NOT NULL, -- of the last grant
	ttl bigint NOT NULL, -- in milliseconds
	expires timestamp with time zone NOT NULL, -- or when the lock was released
	acquired_at timestamp with time zone NOT NULL,
	renewed_at timestamp with time zone NOT NULL,
	renewals bigint NOT NULL DEFAULT 0, -- rises with each renewal, to its time in ms
	broken boolean NOT NULL DEFAULT false, -- renewals are refused
	data bytea,
	writes bigint NOT NULL DEFAULT 0, -- of the data by this holder
	queue jsonb, -- waiters in their order, or NULL
	emptied boolean NOT NULL DEFAULT false, -- the holder was the last waiter that a release wakes
	history jsonb NOT NULL DEFAULT '[]', -- past holders, the latest last
	-- A grant is a change of this key, and nothing else is: a transaction that has read the row with FOR KEY SHARE delays
	-- the next grant, and no renewal. No index has what renewals change, so they are HOT updates.
	UNIQUE (name, token)
	-- Room on each page for the next version of a row, whose old versions are removed soon: a table of locks is small, and
	-- all of it is written often.
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
