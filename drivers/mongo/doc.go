// Package mongo keeps locks in a MongoDB collection: one document per lock.
//
// Importing the package registers the URL schemes "mongodb" and "mongodb+srv"
// for [github.com/holdfast-go/holdfast.Open]. A program that has a client of
// its own makes a Locker from a collection with [New].
//
// # What it needs
//
// MongoDB 4.4 or later: a replica set, a sharded cluster, or a single server
// outside a set (with a warning, since one crash of it may lose an acknowledged
// lock). It was tested on 4.4.2, 5.0.4, 6.0.5 and 6.0.27, as replica sets and single
// servers; later versions and sharded clusters were not tested. Services that speak MongoDB's protocol without being MongoDB, such as
// Azure Cosmos DB and Amazon DocumentDB, are refused: they lack what the
// promises rest on.
//
// The user needs find, insert and update on the collection; createIndex and
// listIndexes for the TTL index, changeStream for waiters to be woken by a release
// instead of polling every second, collMod only with [WithIndexUpdate]. The role
// readWrite has them all. [NewGuard] says what a guard needs.
//
// # How it works
//
// Acquire is one findAndModify that matches by _id alone, inserts if there is
// nothing, and decides in an aggregation pipeline on the server, under the
// document's own write conflict check. Every time in it is $$NOW, the server's
// clock: the clocks of clients play no part. On a sharded cluster $$NOW is the
// router's clock, so the routers' clocks must agree within the grace of the
// leases.
//
// A hand-over ([Locker.HandOver]) is the same command with one more condition: the
// document's kid may be that of the lease that ends. No release travels in the change
// stream, so no other process is woken.
//
// Every command goes to the primary, every write has write concern "majority",
// whatever the given client or collection is set to, and every command has a
// time limit ([WithCommandTimeout]). A session in a caller's context is ignored:
// inside a transaction a lock would be invisible to others.
//
// # The documents
//
// The fields are _id (the name), v (1, the version of the schema), kid (the
// lease's ID; none while the lock is free), owner, ts (the last renewal),
// acquiredAt, expiresAt, token, ttl (milliseconds), data, writes (how often
// the present holder wrote them), broken and changes (a count of what was done to the
// record besides). A document that does not look like
// this is never changed: every operation on it returns an error that names it.
//
// A release keeps the document, so that the token keeps growing. A TTL index
// removes documents long after their expiry ([WithRetention]); correctness and
// take-over never depend on it. After a removal the next token is the server's
// time in milliseconds, greater than the last one unless the server's clock
// stepped back behind it.
package mongo
