-- The table of Holdfast's locks. Programs that may not create tables need SELECT, INSERT and UPDATE on it.
CREATE TABLE IF NOT EXISTS holdfast_locks (
	name text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	holder text NOT NULL,
	owner text NOT NULL,
	ttl bigint NOT NULL,
	expires timestamp with time zone NOT NULL,
	acquired_at timestamp with time zone NOT NULL,
	renewed_at timestamp with time zone NOT NULL,
	renewals bigint NOT NULL DEFAULT 0,
	broken boolean NOT NULL DEFAULT false,
	data bytea,
	writes bigint NOT NULL DEFAULT 0,
	queue jsonb,
	emptied boolean NOT NULL DEFAULT false,
	history jsonb NOT NULL DEFAULT '[]',
	UNIQUE (name, token)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
