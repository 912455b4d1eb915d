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
//   - changeStream, so that a release wakes waiters; without it they poll every second
//   - collMod, only with [WithIndexUpdate]
//
// [NewGuard] lists what a guard needs.
//
// # How it works
//
// Acquire is one findAndModify. It matches by _id alone, inserts the document if there is
// none, and decides in an aggregation pipeline on the server, atomically for the document.
// Every time in it is $$NOW, the server's clock; the clocks of clients do not matter. On a
// sharded cluster $$NOW is the router's clock, so the routers' clocks must agree within the
// grace of the leases.
//
// A handoff ([Locker.HandOver]) is the same command with one more condition: the document's
// kid may be that of the lease that ends. It sends no release event, so it wakes no other
// process.
//
// Every command goes to the primary, every write has write concern "majority", whatever the
// client's or the collection's settings are, and every command has a time limit
// ([WithCommandTimeout]). A session in the caller's context is ignored: inside a transaction
// a lock would be invisible to others.
//
// # The documents
//
// The fields are:
//
//   - _id: the name
//   - v: 1, the version of the schema
//   - kid: the lease's ID; missing while the lock is free
//   - owner
//   - acquiredAt, ts (the last renewal) and expiresAt
//   - token
//   - ttl, in milliseconds
//   - data, and writes: how often the present holder wrote them
//   - broken
//   - changes: a count that makes every break a change of the document
//
// A document of another form is never changed: every operation on it returns an error that
// has its name.
//
// A release keeps the document, so that the token keeps growing. A TTL index removes
// documents long after their expiry ([WithRetention]); correctness and take-over never depend
// on it. After a removal the next token is the server's time in milliseconds, which is
// greater than the last token unless the server's clock stepped back behind it.
package mongo
