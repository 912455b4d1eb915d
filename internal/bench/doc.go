// Package bench measures a backend as a program sees it through the library: how
// long calls take, how long it takes until the next holder has a lock that was
// released or whose holder crashed, and what it costs to hold many leases. The
// command "holdfast bench" and the benchmarks of package endtoend use it.
//
// Every lock it uses has a name that begins with the prefix of its run, which no
// other run shares. All are released at the end, also after a failure; their records
// stay as long as those of any free lock do.
package bench
