// Package scalesim runs the engine, LeaseManager and Partitions with more processes than one
// machine can run, in virtual time: every Client is real, and the backend is a store in memory
// behind links that have a delay and count the calls. Small cases are tests. The benchmarks run
// large ones.
package scalesim
