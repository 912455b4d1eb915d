package postgres

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// statements are the SQL of a Locker. Each is a transaction of its own: nothing depends on
// the state of a session, no lock of a row outlives an answer, and every kind of pooler works.
type statements struct {
	table string      // quoted, with its schema
	quick *statements // that wait for a row for a moment only

	acquire, join, write, leave, writeData, remove string
	renew, release                                 string
	renewFree, renewRest, releaseFree, releaseRest string // of batches: the rows that nobody has locked, and the others
	inspect, inspectBatch, list, waitingOn         string
}

// fields are what a statement returns of a row, in the order of [row]. l is the row.
const fields = `l.name, l.token, l.holder, l.owner, l.ttl, l.expires, l.acquired_at, l.renewed_at,
	l.renewals, l.broken, l.writes, l.queue, l.emptied, clock_timestamp()`

// version changes with every write of a row. Its transaction alone would not do: after a promotion or a crash the server gives numbers
// of forgotten ones again, and a pooler's client may read before that and write after it.
const version = `concat_ws(' ', l.xmin, l.token, l.renewals, l.holder, l.broken, l.writes, l.queue)`

const (
	allFields   = fields + `, ` + version + `, l.history, l.data`
	withVersion = fields + `, ` + version + `, l.history, NULL::bytea`
	withFacts   = fields + `, '', NULL::jsonb, NULL::bytea`
)

// The server's clock; now() would be the beginning of the transaction. If a statement waits for a row, the clock is read
// again if another transaction has changed the row, and otherwise stays that of before the wait. That is still after the
// caller sent its request, and from then the caller counts its lease.
const (
	millis = `floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	nanos  = `((extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000)`
	free   = `(l.holder = '' OR l.expires <= clock_timestamp())`
)

// safely is a condition that is always true. It sets for this transaction what a write needs, whatever the defaults of
// the server, the database and the user are:
//
//   - Promise 1: the commit is flushed, and waits for synchronous standbys if there are any.
//   - Promise 1: the server sends warnings: one says that a commit did not wait for its standby.
//   - The wait for the lock of a row ends. pgx cancels the statement of a call that ends, but the cancellation can be lost,
//     and each such statement would keep a connection of the server until the row is free.
func safely(lockTimeout string) string {
	return `(SELECT concat(
		CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END,
		CASE WHEN current_setting('client_min_messages') NOT IN ('notice', 'warning')
			THEN set_config('client_min_messages', 'warning', true) END,
		set_config('lock_timeout', '` + lockTimeout + `', true)) <> '')`
}

// quickly is safely for a change of positions in a queue, which may be forgotten with the server: waiters poll, and enter again. Its
// commit is not flushed and waits for no standby, so the next holder does not wait for it: a holder that releases the lock and asks
// again enters the queue while the first waiter comes.
func quickly(lockTimeout string) string {
	return `(SELECT concat(set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '` + lockTimeout + `', true)) <> '')`
}

// confirmSQL writes something that nobody reads. As every commit it waits for synchronous standbys, which then have all earlier
// commits of the server, too. By default everybody may call the function, and it locks no row. The number of the transaction has a
// standby refuse with the code of a server that is read-only.
var confirmSQL = `SELECT pg_logical_emit_message(true, 'holdfast', '') WHERE txid_current() IS NOT NULL AND ` + safely(writeWait)

// How long a statement waits for a row that is locked. A grant waits for the transactions that guard their writes by
// the lease before it, so it does not keep a connection for long.
const (
	quickWait = "20ms" // commits of grants, renewals and releases take less
	grantWait = "1s"
	writeWait = "5s"
)

// ended is the history with the present tenure at its end. end and until are SQL; keep is the number of tenures.
func ended(end, until string, keep int) string {
	if keep == 0 {
		return `'[]'`
	}
	return fmt.Sprintf(`(CASE WHEN jsonb_array_length(l.history) >= %d THEN l.history - 0 ELSE l.history END) || jsonb_build_object(
		'owner', l.owner, 'token', l.token, 'from', %s, 'until', %s,
		'end', CASE WHEN l.broken THEN 'broken' ELSE %s END)`, keep, possible(`l.acquired_at`), possible(until), end)
}

// possible is a time, or NULL for one that no lease has and that Go cannot read: another program has written it.
func possible(t string) string {
	return `CASE WHEN ` + t + ` BETWEEN '1971-01-01' AND '2200-01-01' THEN ` + t + ` END`
}

// queueWithout is the queue without the waiter of a parameter; NULL if it is empty then.
func queueWithout(param string) string {
	return `nullif(jsonb_path_query_array(l.queue, 'strict $[*] ? (@.id != $w)', jsonb_build_object('w', ` + param + `)), '[]')`
}

// statementsFor returns the statements for a table.
func statementsFor(table tableName, keep int) *statements {
	s := statementsThatWait(table.quoted(), keep, grantWait, writeWait)
	s.quick = statementsThatWait(table.quoted(), keep, quickWait, quickWait)
	return s
}

// statementsThatWait returns the statements with limits for the waits for a row, of acquires and of a holder's writes.
func statementsThatWait(t string, keep int, wait, writeWait string) *statements {
	return &statements{
		table: t,

		acquire: acquireSQL(t, keep, wait),
		join:    joinSQL(t, wait),
		// Writes a row if it has not changed since it was read.
		// $1 name $2 version, then those of values
		write: `UPDATE ` + t + ` AS l SET holder = $3::text, owner = $4::text, token = $5::bigint, ttl = $6::bigint,
				expires = $7::timestamptz, acquired_at = $8::timestamptz, renewed_at = $9::timestamptz, renewals = $10::bigint,
				broken = $11::boolean, writes = $12::bigint, queue = $13::text::jsonb, emptied = $14::boolean,
				history = $15::text::jsonb, data = coalesce($16::bytea, l.data)
			WHERE ` + safely(wait) + ` AND l.name = $1::text AND ` + version + ` = $2::text
			RETURNING (l.holder, l.token, l.expires, l.broken) = ($3::text, $5::bigint, $7::timestamptz, $11::boolean)`,
		// Ends the positions of a waiter. $1 names $2 waiter
		leave: `WITH r AS MATERIALIZED (SELECT l.name FROM ` + t + ` AS l WHERE ` + quickly(writeWait) + ` AND l.name = ANY($1::text[])
				AND l.queue @> jsonb_build_array(jsonb_build_object('id', $2::text)) ORDER BY l.name FOR NO KEY UPDATE)
			UPDATE ` + t + ` AS l SET emptied = false, queue = ` + queueWithout(`$2::text`) + ` FROM r WHERE l.name = r.name`,
		// Writes the data of a lock. $1 name $2 holder $3 data $4 token $5 writes
		writeData: `UPDATE ` + t + ` AS l SET data = $3::bytea, writes = l.writes + 1 WHERE ` + safely(writeWait) + `
			AND l.name = $1::text AND l.holder = $2::text AND l.token = $4::bigint AND l.writes = $5::bigint AND l.expires > clock_timestamp()
			RETURNING l.writes = $5::bigint + 1`,
		// Removes a lock that is free and has no data. Promise 3: the next token comes from the clock and must be greater.
		// $1 name
		remove: `DELETE FROM ` + t + ` AS l WHERE l.name = $1::text AND ` + free + ` AND coalesce(length(l.data), 0) = 0
			AND l.token < ` + millis,
		// $1 name $2 holder $3 TTL
		renew: `UPDATE ` + t + ` AS l SET ` + renewed(`$3::bigint`) + ` WHERE ` + safely(writeWait) + `
			 AND l.name = $1::text AND l.holder = $2::text AND NOT l.broken RETURNING ` + leaseStored(`l.`, `$2::text`, `$3::bigint`),
		renewFree: lockedRows(t, ` SKIP LOCKED`) + renewRows(t),
		renewRest: lockedRows(t, ``) + renewRows(t),
		release: `UPDATE ` + t + ` AS l SET ` + released(keep) + ` WHERE ` + safely(writeWait) + `
			AND l.name = $1::text AND l.holder = $2::text RETURNING l.name, l.queue, clock_timestamp(), l.holder = ''`,
		releaseFree: lockedRows(t, ` SKIP LOCKED`) + releaseRows(t, keep),
		releaseRest: lockedRows(t, ``) + releaseRows(t, keep),
		waitingOn: `SELECT l.name, l.queue, clock_timestamp(), true FROM ` + t + ` AS l
			WHERE l.name = ANY($1::text[]) AND l.holder = '' AND l.queue IS NOT NULL`,
		// The format of data is the one that pgx reads.
		inspect: `SELECT ` + allFields + ` FROM (SELECT set_config('bytea_output', 'hex', true)) AS one
			LEFT JOIN ` + t + ` AS l ON l.name = $1::text`,
		inspectBatch: `SELECT ` + withFacts + ` FROM ` + t + ` AS l WHERE l.name = ANY($1::text[])`,
		list: `SELECT ` + withFacts + ` FROM ` + t + ` AS l WHERE l.name > $1::text AND l.name >= $2::text AND l.name < $3::text
			AND starts_with(l.name, $2::text) ORDER BY l.name LIMIT ` + fmt.Sprint(listPage),
	}
}

// renewed is what a renewal sets. Promise 2: the end of a lease never moves back. Promise 1: a fail-over may forget renewals that
// others have seen, and no later one has their number: it is the time or, while the clock is behind, a random one.
func renewed(ttl string) string {
	return `expires = greatest(l.expires, clock_timestamp() + ` + ttl + ` * interval '1 ms'), ttl = greatest(l.ttl, ` + ttl + `),
		renewed_at = clock_timestamp(), renewals = CASE WHEN ` + millis + ` > l.renewals THEN ` + millis + `
			ELSE l.renewals + 1 + floor(random() * 65536)::bigint END`
}

// released is what a release sets.
func released(keep int) string {
	return `holder = '', broken = false, expires = clock_timestamp(), history = ` + ended(`'released'`, `clock_timestamp()`, keep)
}

// renewRows renews the leases of lockedRows.
func renewRows(t string) string {
	return `UPDATE ` + t + ` AS l SET ` + renewed(`r.ttl`) + ` FROM r WHERE l.name = r.name AND l.holder = r.holder AND NOT l.broken
		RETURNING r.name, r.holder, ` + leaseStored(`l.`, `r.holder`, `r.ttl`)
}

// releaseRows releases the leases of lockedRows.
func releaseRows(t string, keep int) string {
	return `UPDATE ` + t + ` AS l SET ` + released(keep) + ` FROM r WHERE l.name = r.name AND l.holder = r.holder
		RETURNING l.name, l.queue, clock_timestamp(), l.holder = ''`
}

// lockedRows begins a statement for the rows of several leases. It locks them in the order of their names: two batches
// with the same rows would deadlock otherwise. It leaves out those that others have locked, or waits for each of them: one that is
// locked for long must not keep the rest from being renewed. $1 names $2 holders $3 TTLs; a lease may occur twice.
func lockedRows(t, leaveOut string) string {
	return `WITH r AS MATERIALIZED (SELECT l.name, l.holder, u.ttl FROM ` + t + ` AS l
	JOIN (SELECT name, holder, max(ttl) AS ttl FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(name, holder, ttl) GROUP BY 1, 2) AS u
	ON l.name = u.name AND l.holder = u.holder WHERE ` + safely(grantWait) + ` ORDER BY l.name FOR NO KEY UPDATE OF l` + leaveOut + `) `
}

// acquireSQL grants a lock that is free for the caller, because nobody waits or it is the first waiter, and returns its
// token. Otherwise it returns the row, and package lockstate decides: about repeats, Replace,
// the turns of later waiters, and positions. A refusal writes nothing and locks no row.
// $1 name $2 holder $3 owner $4 TTL in ms $5 data $6 waiter $7 whether the waiter polls
func acquireSQL(t string, keep int, wait string) string {
	may := `(` + free + ` AND (l.queue IS NULL OR l.queue->0->>'id' = $6::text))`
	return `WITH g AS (
		INSERT INTO ` + t + ` AS l (name, holder, owner, token, ttl, expires, acquired_at, renewed_at, data)
		SELECT $1::text, $2::text, $3::text, floor(extract(epoch FROM c) * 1000)::bigint, $4::bigint,
			c + $4::bigint * interval '1 ms', c, c, $5::bytea
		FROM (SELECT clock_timestamp() AS c) AS clock
		WHERE ` + safely(wait) + ` AND NOT EXISTS (SELECT FROM ` + t + ` AS l WHERE l.name = $1::text AND NOT ` + may + `)
		ON CONFLICT (name) DO UPDATE SET
			holder = $2::text, owner = $3::text, token = greatest(l.token + 1, ` + millis + `), ttl = $4::bigint,
			expires = clock_timestamp() + $4::bigint * interval '1 ms', acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
			renewals = ` + millis + `, broken = false, data = coalesce($5::bytea, l.data), writes = 0,
			queue = CASE WHEN l.queue IS NOT NULL THEN ` + queueWithout(`$6::text`) + ` END,
			emptied = l.queue IS NOT NULL AND l.queue @> jsonb_build_array(jsonb_build_object('id', $6::text)) AND NOT $7::boolean
				AND NOT jsonb_path_exists(l.queue, '$[*] ? (@.id != $w && !exists(@.polls))', jsonb_build_object('w', $6::text)),
			history = CASE WHEN l.holder = '' THEN l.history ELSE ` +
		ended(`'expired'`, `least(l.expires, clock_timestamp())`, keep) + ` END
		WHERE ` + may + `
		RETURNING token, queue IS NOT NULL AS contended, ` + leaseStored(``, `$2::text`, `$4::bigint`) + ` AS kept)
	SELECT g.token, g.contended, g.kept, ` + withVersion + ` FROM (SELECT) AS one LEFT JOIN g ON true
		LEFT JOIN ` + t + ` AS l ON g.token IS NULL AND l.name = $1::text`
}

// joinSQL gives a waiter a position, as lockstate's join does: at the end of the queue, or the one that it has. Those
// whose time is over lose theirs.
// $1 name $2 waiter $3 how long in ms $4 whether it polls
func joinSQL(t, wait string) string {
	me := `jsonb_build_object('id', $2::text, 'untilNanoseconds', ` + nanos + ` + $3::bigint * 1000000)
		|| CASE WHEN $4::boolean THEN '{"polls": true}' ELSE '{}' END::jsonb`
	within := `coalesce(l.queue @> jsonb_build_array(jsonb_build_object('id', $2::text)), false)`
	until := `(w->>'untilNanoseconds')::bigint`
	return `UPDATE ` + t + ` AS l SET emptied = false, queue = (SELECT jsonb_agg(w ORDER BY n) FROM (
			SELECT CASE WHEN w->>'id' = $2::text THEN ` + me + ` ELSE w END AS w, n
				FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q(w, n) WHERE w->>'id' = $2::text OR ` + until + ` > ` + nanos + `
			UNION ALL SELECT ` + me + `, ` + fmt.Sprint(driver.MaxWaiters+1) + ` WHERE NOT ` + within + `) AS q)
		WHERE ` + quickly(wait) + ` AND l.name = $1::text AND (` + within + `
			OR coalesce(jsonb_array_length(l.queue), 0) < ` + fmt.Sprint(driver.MaxWaiters) + `
			OR ` + strings.Replace(until, "w", "l.queue->0", 1) + ` <= ` + nanos + `)
		RETURNING ` + withVersion
}

// notifySQL wakes waiters. The commit need not be flushed: a notification is lost with the server anyway, and waiters
// poll. $1 channels $2 payloads
const notifySQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify(c, p) FROM unnest($1::text[], $2::text[]) AS u(c, p)`
