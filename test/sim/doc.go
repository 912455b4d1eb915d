// Package sim runs the real library over a simulated backend in virtual time, under random
// schedules of faults, and checks its promises.
//
//   - A [Plan] says everything about one schedule: the backend and its clocks, the processes, what
//     their programs do, and the faults. [Draw] draws one from a seed.
//   - [Run] runs a schedule. The server (server.go) decides by the rules of package lockstate, with
//     the timing of MongoDB or of Azure Blob Storage. Each process (process.go) has a Client, whose
//     Locker (link.go) is the network to the server. Its programs (actors.go) take locks, lead,
//     manage leases and share partitions.
//   - The result is judged (judge.go) by the rules of package history, as the chaos tests are, and
//     by rules that need a view of everything: progress, bounded requests, nothing left behind.
//
// The time of a schedule is that of a testing/synctest bubble: ten minutes take milliseconds.
// docs/simulation.md says how to run, replay and shorten schedules.
package sim
