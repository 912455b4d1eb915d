// Package bench measures a backend through the library: how long calls take, how long a waiter
// waits for a lock after its release or after the crash of its holder, and what it costs to hold
// many leases. The command "holdfast bench" and the benchmarks of this repository use it. It is no part of the API,
// and may change at any time.
//
// The names of all locks begin with a prefix that is unique to the run. All locks are released at
// the end, also after a failure. Their records stay as long as those of any free lock.
package bench
