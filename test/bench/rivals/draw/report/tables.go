package main

import "fmt"

// calls compares single calls with the same work by hand.
func calls(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"call", "by hand", "Holdfast", "ratio", "95 % interval"}}
	for _, c := range []struct{ what, benchmark string }{
		{"MongoDB: renew", benchMongoRatio + "Renew"},
		{"MongoDB: release", benchMongoRatio + "Release"},
		{"… compared with an update that keeps the record", benchMongoRatio + "ReleaseKept"},
		{"MongoDB: acquire a new name", benchMongoRatio + "AcquireNew"},
		{"… compared with a conditional upsert", benchMongoRatio + "AcquireNewConditional"},
		{"MongoDB: acquire again", benchMongoRatio + "AcquireAgain"},
		{"… compared with a conditional upsert", benchMongoRatio + "AcquireAgainConditional"},
		{"Azure: renew", benchAzureRatio + "Renew"},
		{"Azure: acquire and release", benchAzureRatio + "AcquireAndRelease"},
		{"Azure: a failed acquire (lock is held)", benchAzureRatio + "AcquireHeld"},
	} {
		rows = append(rows, []string{
			c.what, fmt.Sprintf("%.2f ms", r.get(c.benchmark, "base-µs")/1000), fmt.Sprintf("%.2f ms", r.get(c.benchmark, "ours-µs")/1000),
			fmt.Sprintf("%.3f", r.get(c.benchmark, "ratio")), fmt.Sprintf("%.3f–%.3f", r.get(c.benchmark, "ratio-low95"),
				r.get(c.benchmark, "ratio-high95")),
		})
	}
	return table(rows...), r.err
}

func questions(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"call", "time", "allocations"}}
	for _, q := range []struct{ what, name string }{{"`runner.IsLeader()`", "IsLeader"}, {"`hold.Err()`", "HoldErr"},
		{"`TokenFromContext(ctx)`", "TokenFrom"}} {
		rows = append(rows, []string{q.what, fmt.Sprintf("%.0f ns", r.get(benchQuestions+q.name, "ns/op")),
			fmt.Sprintf("%.0f", r.get(benchQuestions+q.name, "allocs/op"))})
	}
	return table(rows...), r.err
}

// quantiles returns a row with p50, p90 and p99.
func (r *reader) quantiles(what, benchmark, unit string) []string {
	row := []string{what}
	for _, q := range []string{"-p50-ms", "-p90-ms", "-p99-ms"} {
		row = append(row, milliseconds(r.get(benchmark, unit+q)))
	}
	return row
}

// milliseconds formats a duration with three digits.
func milliseconds(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.2f ms", ms)
	}
}

func handoff(measured results) (string, error) {
	r := &reader{results: measured}
	text := table(
		[]string{"", "p50", "p90", "p99"},
		r.quantiles("Holdfast, between two clients", benchHandoff, "handoff"),
		r.quantiles("acquire without waiters, alternating with it", benchHandoff, "acquire"),
		r.quantiles("release without waiters, alternating with it", benchHandoff, "release"),
		r.quantiles("Holdfast, between two processes", benchTwo, processesHandoff),
		r.quantiles("a plain majority write, alternating with it", benchTwo, "write"),
		r.quantiles("baseline: a loop that tries every second", benchHandoffPolled, "handoff"),
		r.quantiles("baseline: lock from articles", benchHandoffArticle, "handoff"),
	)
	text += fmt.Sprintf("\nRatio of the medians, change of holder to acquire + release: **%.2f** between clients.\n",
		r.get(benchHandoff, handoffRatio))
	return text, r.err
}

func steps(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"steps of a change of holder", "p50", "p90", "p99"},
		r.quantiles("from sending the release to the wake-up of the waiter", benchHandoffSteps, "event"),
		r.quantiles("in parallel: from sending the release to its answer", benchHandoffSteps, "release-write"),
		r.quantiles("the acquire, from sending it to its answer", benchHandoffSteps, "acquire-write"),
		r.quantiles("overhead of Holdfast before, between and after", benchHandoffSteps, "ours"),
	), r.err
}

func takeover(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"from the lease's expiry", "p50", "p90", "p99"},
		r.quantiles("Holdfast", benchTakeover, "takeover"),
		r.quantiles("baseline: lock from articles", benchTakeoverArticle, "takeover"),
	), r.err
}

func heldLeases(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"leases", "held for", "lost", "acquiring all", "commands per second", "one by one", "CPU", "memory per lease",
		"goroutines"}}
	for _, n := range leaseCounts {
		name := fmt.Sprint(benchLeases, n)
		get := func(unit string) float64 { return r.get(name, unit) }
		rows = append(rows, []string{
			fmt.Sprint(n), seconds(get("held-s")), fmt.Sprintf("%.0f", get("lost")), milliseconds(get("acquiring-ms")),
			fmt.Sprintf("%.2f", get("commands/s")), fmt.Sprintf("%.0f (× %.0f)", get("commands/s")*get("one-by-one/batched"),
				get("one-by-one/batched")),
			fmt.Sprintf("%.2f %%", get("cpu-%")), kib(get("bytes/lease")), fmt.Sprintf("%.0f", get("goroutines")),
		})
	}
	return table(rows...), r.err
}

func waiters(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"1,000 waiters, 10 processes", ""},
		[]string{"changes of holder: all waiters served, one at a time, tokens rising", fmt.Sprintf("%.0f", r.get(benchWaiters, "handoffs"))},
		[]string{"time of each", milliseconds(r.get(benchWaiters, "handoff-ms"))},
		[]string{"acquire + release without waiters, before it", milliseconds(r.get(benchWaiters, "acquire+release-ms"))},
		[]string{"ratio", fmt.Sprintf("**%.2f**", r.get(benchWaiters, handoffRatio))},
		[]string{"commands for each, of all processes", fmt.Sprintf("%.1f", r.get(benchWaiters, "commands/handoff"))},
		[]string{"longest wait of a waiter", milliseconds(1000 * r.get(benchWaiters, "longest-wait-s"))},
		[]string{"most handoffs in a row within one process", fmt.Sprintf("%.0f", r.get(benchWaiters, "in-a-row"))},
	), r.err
}

func followers(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"1,000 followers", "requests per follower and minute", "US dollars per month for all"}}
	for _, c := range []struct{ what, name string }{
		{"1,000 processes wait for one name", "1000x1"}, {"10 processes wait for the same 100 names each", "10x100"},
	} {
		rows = append(rows, []string{c.what, fmt.Sprintf("%.1f", r.get(benchFollowers+c.name, "calls/follower/min")),
			fmt.Sprintf("%.2f", r.get(benchFollowers+c.name, "USD/month/1000followers"))})
	}
	return table(rows...), r.err
}

func partitions(measured results) (string, error) {
	r := &reader{results: measured}
	get := func(unit string) float64 { return r.get(benchPartitions, unit) }
	text := table(
		[]string{"256 partitions, TTL 15 s", "balanced after", "partitions moved", "minimum"},
		[]string{"1 instance", fmt.Sprintf("%.1f s", get("even-on-1-s")), "256", "256"},
		[]string{"7 join: 8 instances", fmt.Sprintf("%.1f s", get("even-on-8-s")), fmt.Sprintf("%.0f", get("moves-to-8")),
			fmt.Sprintf("%.0f", get("least-to-8"))},
		[]string{"2 leave, 1 is cut off: 5 instances", fmt.Sprintf("%.1f s", get("even-on-5-s")), fmt.Sprintf("%.0f", get("moves-to-5")),
			fmt.Sprintf("%.0f", get("least-to-5"))},
	)
	text += fmt.Sprintf("\nWhen idle, an instance sends %.0f reads and %.0f renewals per minute.\n", get("idle-looks/min"),
		get("idle-renewals/min"))
	return text, r.err
}

func files(measured results) (string, error) {
	r := &reader{results: measured}
	text := table(
		[]string{"file backend", "p50", "p90", "p99"},
		r.quantiles("Holdfast, between two processes", benchFileHandoff, "handoff"),
		r.quantiles("acquire without waiters, alternating with it", benchFileHandoff, "acquire"),
		r.quantiles("release without waiters, alternating with it", benchFileHandoff, "release"),
	)
	text += fmt.Sprintf("\nA process that campaigns for 2,000 names "+
		"which another holds uses %.1f %% of a processor, and the holder %.1f %%.\n",
		r.get(benchFileStandby, "standby-cpu-%"), r.get(benchFileStandby, "holder-cpu-%"))
	return text, r.err
}

func leaseMemory(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"leases", "memory of each", "… after `Hold.Context`", "… after `Context().Done`", "renewals per second",
		"commands per second", "CPU"}}
	for _, n := range []int{10_000, 100_000} {
		get := func(unit string) float64 { return r.get(fmt.Sprint(benchLeaseMemory, n), unit) }
		rows = append(rows, []string{fmt.Sprint(n), kib(get("bytes/lease")), kib(get("bytes/lease-with-context")),
			kib(get("bytes/lease-with-Done")),
			fmt.Sprintf("%.0f", get("renewals/s")), fmt.Sprintf("%.1f", get("renewal-calls/s")), fmt.Sprintf("%.1f %%", get("cpu-%"))})
	}
	return table(rows...), r.err
}
