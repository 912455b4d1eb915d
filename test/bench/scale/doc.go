// Package scale measures on a real replica set what waiting costs: the application that uses
// the same servers, the servers themselves, and the waiters. Each benchmark compares the ways in
// which waiters are woken, and takes turns with them in one run, because the speed of a machine
// changes from minute to minute.
//
// A follower is a Client with connections of its own, as a process has. Several of them share one
// worker process, so that the machine has room for hundreds.
package scale
