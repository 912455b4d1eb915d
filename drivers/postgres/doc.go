// Package postgres keeps locks in a table of PostgreSQL 12 or newer. A row is a lock.
//
//	l, err := postgres.Open(ctx, "postgres://app@db1,db2/app?sslmode=verify-full")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. [New] takes the settings of
// a pool, and [NewDB] those of a database of package database/sql. The Locker has connections of its own: a program
// that has used up its pool can still renew its locks.
//
// # Table
//
// The Locker makes the table holdfast_locks in the first schema of the search path, unless there is one. [WithTable], or
// the URL parameters schema and table, set others. A program that may not create tables needs the rights SELECT, INSERT
// and UPDATE on a table that [Schema] has made. Rows are never removed: the row of a lock keeps its token and data.
//
// # What it relies on
//
//   - Time: only the server's clock judges leases.
//   - Sessions: nothing. Each statement is a transaction of its own, so every mode of every pooler works,
//     with prepared statements of the protocol and without. A pooler that mixes them up is detected, and the Locker
//     does without from then on. Session advisory locks, which poolers break, are not used.
//   - Settings: each write sets for itself what it needs. It is flushed, and waits for synchronous standbys, whatever
//     synchronous_commit is by default. It is exact under every default isolation level.
//
// # Fail-over
//
// With synchronous standbys (synchronous_standby_names) an acknowledged grant survives the loss of the server. Without
// them a fail-over can forget the latest grants, and the driver declares that. A new
// connection to another cluster, or to a lower timeline, than the Locker has used is refused. If the wait for a standby is cancelled,
// the server reports success with a warning. The driver returns an error with an unknown outcome then, and the client
// cleans up.
//
// # Waiting
//
// Waiters of all processes form queues, which are in the rows. A release that has waiters notifies the first two, or of more
// than 20 the first, by NOTIFY in a transaction of its own: one connection of each Locker that has waiters listens. When it
// is opened, the Locker sends a notification to itself. If that does not arrive, a pooler in transaction or statement mode
// is between, and waiters poll. The URL parameter listen sets a URL for that connection alone, such as one that leads past
// the pooler.
//
// # Rows for other programs
//
// A lock is held while holder is not empty and expires is later than clock_timestamp(). holder is the SHA-256 of the lease
// ID, so who reads the table cannot act for a holder. In names and owners a zero byte is stored as the bytes 01 01, and
// a byte 01 as 01 02. Times in queue are in nanoseconds since 1970.
//
// The pair (name, token) is unique, which makes a grant, and nothing else, a change of a key. [Guard] relies on that: its
// transactions delay the next grant and no renewal. A request for the lock waits a second for such a transaction, and is
// refused then.
package postgres
