// Package mysql keeps locks in a table of MySQL 8.0 or later, or of MariaDB 10.6 or later. A row is a lock.
//
//	l, err := mysql.Open(ctx, "mysql://app@db1,db2/app?tls=true")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. [New] takes a program's own *sql.DB.
//
// # Table
//
// The Locker makes the table holdfast_locks in the database, unless there is one. [WithTable], or the URL parameter table, sets another. A
// program that may not create tables needs the rights SELECT, INSERT and UPDATE on a table that [Schema] has made. Rows are never
// removed, because tokens must rise. The format of a value is that of package [github.com/holdfast-go/holdfast/driver/cas].
//
// # What it relies on
//
//   - Writes: each is one statement, which InnoDB does as a whole. It compares the hash of the present value, so an edit by hand is
//     never overwritten.
//   - Time: only the server's clock judges leases, in UTC, whatever the time zone of the session is.
//   - Sessions: nothing. There are no prepared statements, no variables and no transactions, so every proxy works. A server that is
//     read-only, a session without autocommit, and one that reads what is not committed are refused by the statements themselves.
//
// # Fail-over
//
// Replication is asynchronous by default, and semi-synchronous replication becomes so when no replica answers in time: a fail-over may
// forget the latest grants, and the driver declares that. Only of a Galera cluster that flushes each commit does it declare that grants
// survive.
//
// [Guard] lets a transaction of a holder commit only while no later holder exists.
package mysql
