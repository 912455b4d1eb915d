// Package scale measures on real servers what locks cost: calls, changes of holder, takeovers, many leases, and waiting: the
// application that uses the same servers, the servers themselves, and the waiters. Those that compare the ways in which waiters are woken
// take turns with them in one run, because the speed of a machine changes from minute to minute.
//
// A follower is a Client with connections of its own, as a process has. Several of them share one
// worker process, so that the machine has room for hundreds.
package scale
