package main

import (
	"cmp"
	"fmt"
)

// Benchmarks that measure the two ways to wake waiters in one run.
const (
	benchWrites    = scaleBench + "ApplicationWrites"
	benchIdle      = scaleBench + "IdleFollowers"
	benchQueue     = scaleBench + "Queue"
	benchManyCrash = scaleBench + "TakeOverMany"
	benchCost      = scaleBench + "ServerCost"
)

var wakeWays = []string{"hints", "poll"}

// waiting compares the ways to wake waiters.
func waiting(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"", "target", "hints", "polling"}}
	for _, c := range []struct{ what, target, benchmark, unit, format string }{
		{"application's inserts with followers, relative to none", "≥ 0.97", benchWrites, "inserts/alone", "%.2f"},
		{"the same, relative to followers that only have connections", "", benchWrites, "inserts/connected", "%.2f"},
		{"servers' CPU per insert, relative to no followers", "", benchWrites, "server-cpu/alone", "%.2f"},
		{"idle follower: commands per minute", "≤ 6", benchIdle, "commands/follower/min", "%.1f"},
		{"idle follower: servers' CPU per minute, ms", "", benchIdle, "server-cpu-ms/follower/min", "%.1f"},
		{"change of holder between two processes, relative to acquire + release", "≤ 1.0", benchTwo, "handoff/acquire+release", "%.2f"},
		{"the same, relative to an acquire and a release that each follow a pause, too", "", benchTwo, "handoff/acquire+release-after-pauses",
			"%.2f"},
		{"many wait: commands per change of holder", "≤ 8", benchQueue, "commands/handoff", "%.1f"},
		{"many wait: a change of holder, relative to acquire + release", "≤ 1.3", benchQueue, "handoff/acquire+release", "%.2f"},
		{"many wait: waits that a later arrival passed, %", "0", benchQueue, "passed-waits-%", "%.1f"},
		{"many wait: the longest wait, in changes of holder per waiter", "≤ 1.2", benchQueue, "longest-wait/waiters", "%.2f"},
		{"takeover with many waiters, from the expiry, ms", "", benchManyCrash, "takeover-ms", "%.0f"},
		{"the same: commands", "≤ 12", benchManyCrash, "commands/takeover", "%.0f"},
	} {
		row := []string{c.what, c.target}
		for _, way := range wakeWays {
			unit := way + ":" + c.unit
			median := fmt.Sprintf(c.format, r.get(c.benchmark, unit))
			interval := fmt.Sprintf(c.format+"–"+c.format, r.get(c.benchmark, unit+"-low95"), r.get(c.benchmark, unit+"-high95"))
			row = append(row, fmt.Sprintf("**%s** (%s)", median, interval))
		}
		rows = append(rows, row)
	}
	crash := []string{"takeover with many waiters, p99, ms", "≤ 100"}
	for _, way := range wakeWays {
		crash = append(crash, fmt.Sprintf("%.0f", r.get(benchManyCrash, way+":takeover-p99-ms")))
	}
	text := table(append(rows, crash)...)
	text += fmt.Sprintf("\n%.0f followers or waiters; %.0f changes of holder of one name for each way.\n",
		r.get(benchWrites, "followers"), r.get(benchQueue, "handoffs"))
	machine, err := machineLine(measured)
	return text + machine, cmp.Or(r.err, err)
}

// serverCost shows what one operation costs the servers.
func serverCost(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"operation", "servers' CPU, all three members", "oplog"}}
	for _, c := range []struct{ what, name string }{
		{"acquire and release of a free lock", "acquire+release"},
		{"a refused acquire", "refused-acquire"},
		{"renewal of one lease by itself", "renewal-alone"},
		{"renewal of one lease in a batch of 500", "renewal-in-a-batch"},
		{"one record in a read of 1,000", "record-in-a-batch-read"},
	} {
		rows = append(rows, []string{
			c.what, fmt.Sprintf("%.3f ms (%.3f–%.3f)", r.get(benchCost, c.name+":server-cpu-µs")/1000,
				r.get(benchCost, c.name+":server-cpu-µs-low95")/1000, r.get(benchCost, c.name+":server-cpu-µs-high95")/1000),
			fmt.Sprintf("%.0f bytes", r.get(benchCost, c.name+":oplog-bytes")),
		})
	}
	rows = append(rows, []string{"an idle client's connections, per minute",
		fmt.Sprintf("%.1f ms", r.get(benchIdle, "hints:server-cpu-ms/connected-client/min")), ""})
	return table(rows...), r.err
}
