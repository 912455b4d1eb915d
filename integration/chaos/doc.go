// Package chaos injects random faults into a lock service and its clients. On each backend, eight
// processes of package workload are killed, stopped and cut off, and the servers are killed,
// frozen, restarted and throttled, for any length of time. Then the histories are checked, and a
// summary is printed.
//
//	make chaos DURATION=10m SEED=1
//
// or, from the folder integration,
//
//	go test -v -count=1 -timeout 0 -run '^TestChaos$' ./chaos -chaos.duration 10m -chaos.seed 1
//
// The seed decides which faults are injected, in which order and for how long. Which client a
// fault affects depends on who holds the lock, and the outcome depends on the speed of the
// system, so a run with the same seed is not a replay. Without a seed, a new one is chosen and
// printed.
//
// The run fails if a rule of package history was violated, if a process did not end normally, if
// the lock was not granted again after the last fault, or if there was too little activity for a
// meaningful result. Then the history is stored; the output says where.
package chaos
