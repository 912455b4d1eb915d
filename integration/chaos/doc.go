// Package chaos has random faults come over a lock and those who want it: eight
// processes of package workload on each backend are killed, stopped and cut off, and
// the servers of the backend killed, frozen, restarted and throttled, for as long as
// one likes. Then the histories are checked, and a summary is printed.
//
//	make chaos DURATION=10m SEED=1
//
// or, from the folder integration,
//
//	go test -v -count=1 -timeout 0 -run '^TestChaos$' ./chaos -chaos.duration 10m -chaos.seed 1
//
// The seed decides which faults come, in which order and for how long; whom they meet
// depends on who has the lock, and what the system makes of them on its speed, so a
// seed is no replay. Without one, a new one is chosen and printed.
//
// The run fails if a rule of package history was broken, if a process did not end in
// order, if after the last fault the lock was not granted again, or if so little
// happened that the rest means nothing. The history is stored then; the output says
// where.
package chaos
