// Package mongo keeps locks in a MongoDB collection: one document per lock.
//
// Importing the package registers the URL schemes "mongodb" and "mongodb+srv" for
// [github.com/holdfast-go/holdfast.Open]. A program with a client of its own creates a
// Locker from a collection with [New].
//
// # Requirements
//
// MongoDB 4.4 or later: a replica set, a sharded cluster, or a standalone server. A
// standalone is logged as a warning, since a crash can lose an acknowledged lock. The driver
// was tested on 4.4.2, 5.0.4, 6.0.5 and 6.0.27, as replica sets and standalone servers. Later
// versions and sharded clusters were not tested. Services that speak MongoDB's protocol
// without being MongoDB, such as Azure Cosmos DB and Amazon DocumentDB, are refused: they
// lack guarantees that the promises need.
//
// The user needs these privileges on the collection. The role readWrite has all of them but
// collMod, which dbAdmin has:
//
//   - find, insert and update
//   - createIndex and listIndexes for the TTL index
//   - createCollection, and find and insert on the collection of the hints, so that a release wakes
//     waiters; without them they poll
//   - collMod, only with [WithIndexUpdate]
//   - remove, only for the probe of a check ([Locker.RemoveProbe])
//
// [NewGuard] lists what a guard needs.
//
// When a user is dropped and made again, also with the same password, the server logs out the
// connections of the old one, and refuses every command on them. A Locker of [Open] replaces
// them: a request fails with "the server has logged out this connection", and the next one
// logs in. The client of [New] logs in only on the connections that it makes later, so the
// error, which matches driver.ErrDenied, says that the program needs a new client. To change
// a password or roles without that, change the user (updateUser) instead.
//
// # How it works
//
// Acquire is one findAndModify. It matches by _id alone, inserts the document if there is
// none, and decides in an aggregation pipeline on the server, atomically for the document.
// Every time in it is $$NOW, the server's clock; the clocks of clients do not matter. On a
// sharded cluster $$NOW is the router's clock, so the routers' clocks must agree within the
// grace of the leases.
//
// Every command goes to the primary. Every write that decides who holds a lock has write concern
// "majority", whatever the client's or the collection's settings are. (A release that others wait
// for has it in effect; see below.) Every command has a time limit
// ([WithCommandTimeout]). A session in the caller's context is ignored: inside a transaction
// a lock would be invisible to others.
//
// # Waiters
//
// A refusal shows only what a majority has: the server waits for that after a command that changes
// nothing, too. So no waiter sees a revision that a fail-over undoes.
//
// A refused request of a waiter enters the queue of the lock, an array in its document, in the same
// command. A free lock is reserved for the waiters in their order: position n may take it
// n-1 turns ([driver.TurnLength]) after expiresAt, which a release sets to its own time.
// The server's clock judges that in the pipeline of the acquire, so no process coordinates the
// others.
//
// A release wakes the first two waiters (of a long queue, the first) by hints: documents {name, to,
// position} in capped collections, "<collection>.hints.0" to ".f". Each process with waiters
// follows one of them with one tailable cursor, and the server filters by the ID that the process
// has in queues. Hints can be lost or lie. Waiters poll
// as well, and every grant is decided by the acquire.
//
// A release with waiters is sent with write concern 1, then the hint, and then a read that shows
// whether, in what a majority has after it, the lease still has the lock. So the waiter need not wait
// for two majorities one after the other, and Release reports success only when the release is
// certain. The release and the hint are not retryable writes, for which every member writes a record:
// they may take effect twice or late.
//
// # Readers
//
// A request of a reader is one findAndModify, too, with rules for readers, and so are its renewal and its release one
// update. The commands for exclusive leases know nothing of readers: their filters and pipelines do not match a document of
// version 2. An acquire that has met one is sent again in a form that does, which makes the document one of version 1 if it is
// granted. Whom the release of a lock with waiting readers wakes, the releasing process finds out by the queue.
//
// # The documents
//
// The fields are:
//
//   - _id: the name
//   - v: the version of the schema: 2 from the grant to a reader until the next grant to a writer, otherwise 1
//   - kid: the lease's ID, or "shared" with readers; missing while the lock is free
//   - owner
//   - acquiredAt, ts (the last renewal) and expiresAt
//   - token
//   - ttl, in milliseconds
//   - data, and writes: how often the present holder wrote them
//   - broken
//   - queue: the waiters, {w: ID, until: when the position ends, s: true for a reader}; reserve: for how many
//     milliseconds after expiresAt the lock is reserved for them, or -1 after the holder was the last of them
//   - releasedAt, brokenAt, freedAt: when the present or last lease was released, broken or ended by
//     BreakNow; null if it was not; history: the leases before the present one, with these fields under short names (see [WithHistory])
//   - changes: a count that makes every break a change of the document
//   - readers: those that hold the lock shared, each with a lease; renewals: how often they renewed since the latest grant.
//     expiresAt is then when the last of their leases ends
//
// A document of another form is never changed: every operation on it returns an error that
// has its name.
//
// A release keeps the document, so that the token keeps growing. A TTL index removes
// documents long after their expiry ([WithRetention]); correctness and takeover never depend
// on it. After a removal the next token is the server's time in milliseconds, which is
// greater than the last token unless the server's clock stepped back behind it.
//
// Every other TTL index would remove the records of held locks, and a second holder would be granted
// such a lock: one on another field, nested or of an array, or on several. [New] and [Open] refuse it,
// in whatever order the indexes were made, with the command that drops it. They look once, and only a
// user with the privilege listIndexes can. An index that appears while programs run is found by
// [Locker.Check] and at the next start.
//
// So is a unique index that can refuse the records of locks. It must have _id among its fields. A validator
// of the collection may refuse them, too: New logs that, and Check reports it. An acquire that such a
// rule refuses matches [driver.ErrDenied].
package mongo
