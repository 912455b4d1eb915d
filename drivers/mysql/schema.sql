-- The table of Holdfast's locks. Programs that may not create tables need SELECT, INSERT and UPDATE on it.
CREATE TABLE IF NOT EXISTS holdfast_locks (
	name varbinary(255) NOT NULL, -- of the lock, escaped
	token bigint unsigned NOT NULL, -- of the last grant
	written bigint NOT NULL, -- in microseconds since 1970, UTC
	value mediumblob NOT NULL, -- the lock, as JSON
	PRIMARY KEY (name),
	-- A grant is a change of this key, and nothing else is: a transaction that has a shared lock on its entry delays the next
	-- grant, and no renewal. The token comes first, so that new entries are far from those that are locked.
	UNIQUE KEY token_name (token, name)
) ENGINE=InnoDB
