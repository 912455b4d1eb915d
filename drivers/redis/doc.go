// Package redis keeps locks in Redis 7.0 or later, or in Valkey: one string for each lock, which scripts write by compare-and-set.
//
// A fail-over, and a restart without the last writes, may forget a grant: then two holders have one lock, and a token can come twice.
// Where there are replicas, a grant waits until a majority of the servers has it, and is undone if that takes too long. "holdfast
// doctor" says whether a deployment saves work or protects data.
//
// # What is stored
//
// The value of lock "job" is at the key holdfast:job; its format is that of package [github.com/holdfast-go/holdfast/driver/cas]. Keys
// have no expiry and are never deleted, because tokens must rise. Each write is published on the channel holdfast:job@0, 0 being
// the number of the database, for those that wait for the lock.
package redis
