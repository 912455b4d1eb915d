package main

import "fmt"

// calls compares single calls with the same work by hand.
func calls(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"call", "by hand", "ours", "ratio", "95 % interval"}}
	for _, c := range []struct{ what, benchmark string }{
		{"MongoDB: renew", mongoRatio + "Renew"},
		{"MongoDB: release", mongoRatio + "Release"},
		{"… against an update that keeps the record", mongoRatio + "ReleaseKept"},
		{"MongoDB: acquire a new name", mongoRatio + "AcquireNew"},
		{"… against an upsert that is a lock", mongoRatio + "AcquireNewConditional"},
		{"MongoDB: acquire again", mongoRatio + "AcquireAgain"},
		{"… against an upsert that is a lock", mongoRatio + "AcquireAgainConditional"},
		{"Azure: renew", azureRatio + "Renew"},
		{"Azure: acquire and release", azureRatio + "AcquireAndRelease"},
		{"Azure: a try in vain", azureRatio + "AcquireHeld"},
	} {
		rows = append(rows, []string{
			c.what, fmt.Sprintf("%.2f ms", r.get(c.benchmark, "base-µs")/1000), fmt.Sprintf("%.2f ms", r.get(c.benchmark, "ours-µs")/1000),
			fmt.Sprintf("%.3f", r.get(c.benchmark, "ratio")), fmt.Sprintf("%.3f–%.3f", r.get(c.benchmark, "ratio-low95"), r.get(c.benchmark, "ratio-high95")),
		})
	}
	return table(rows...), r.err
}

func questions(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"question", "time", "allocations"}}
	for _, q := range []struct{ what, name string }{{"`runner.IsLeader()`", "IsLeader"}, {"`hold.Err()`", "HoldErr"}, {"`TokenFrom(ctx)`", "TokenFrom"}} {
		rows = append(rows, []string{q.what, fmt.Sprintf("%.0f ns", r.get(asking+q.name, "ns/op")), fmt.Sprintf("%.0f", r.get(asking+q.name, "allocs/op"))})
	}
	return table(rows...), r.err
}

// quantiles is a row of p50, p90, p99.
func (r *reader) quantiles(what, benchmark, unit string) []string {
	row := []string{what}
	for _, q := range []string{"-p50-ms", "-p90-ms", "-p99-ms"} {
		row = append(row, milliseconds(r.get(benchmark, unit+q)))
	}
	return row
}

// milliseconds with three digits.
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

func handOver(measured results) (string, error) {
	r := &reader{results: measured}
	text := table(
		[]string{"", "p50", "p90", "p99"},
		r.quantiles("Holdfast, between two clients", passing, "hand-over"),
		r.quantiles("acquire, nobody waiting, in turn with it", passing, "acquire"),
		r.quantiles("release, nobody waiting, in turn with it", passing, "release"),
		r.quantiles("Holdfast, between two processes", processes, "hand-over"),
		r.quantiles("a plain majority write, in turn with it", processes, "write"),
		r.quantiles("baseline: a loop that tries every second", polled, "hand-over"),
		r.quantiles("baseline: the article's lock", article, "hand-over"),
	)
	text += fmt.Sprintf("\nRatio of the medians, hand-over over acquire + release: **%.2f** between clients, %.2f between processes.\n",
		r.get(passing, overFree), r.get(processes, overFree))
	return text, r.err
}

func steps(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"steps of a hand-over", "p50", "p90", "p99"},
		r.quantiles("from sending the release to the event at the waiter", parts, "event"),
		r.quantiles("beside it: from sending the release to its answer", parts, "release-write"),
		r.quantiles("the acquire, from sending it to its answer", parts, "acquire-write"),
		r.quantiles("what Holdfast adds before, between and after", parts, "ours"),
	), r.err
}

func takeOver(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"from the lease's expiry", "p50", "p90", "p99"},
		r.quantiles("Holdfast", crash, "take-over"),
		r.quantiles("baseline: the article's lock", crashed, "take-over"),
	), r.err
}

func heldLeases(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"leases", "held for", "lost", "acquiring all", "commands a second", "one by one", "CPU", "a lease", "goroutines"}}
	for _, n := range leaseCounts {
		name := fmt.Sprint(held, n)
		get := func(unit string) float64 { return r.get(name, unit) }
		rows = append(rows, []string{
			fmt.Sprint(n), seconds(get("held-s")), fmt.Sprintf("%.0f", get("lost")), milliseconds(get("acquiring-ms")),
			fmt.Sprintf("%.2f", get("commands/s")), fmt.Sprintf("%.0f (× %.0f)", get("commands/s")*get("one-by-one/batched"), get("one-by-one/batched")),
			fmt.Sprintf("%.2f %%", get("cpu-%")), kib(get("bytes/lease")), fmt.Sprintf("%.0f", get("goroutines")),
		})
	}
	return table(rows...), r.err
}

func waiters(measured results) (string, error) {
	r := &reader{results: measured}
	return table(
		[]string{"1,000 waiters, 10 processes", ""},
		[]string{"hand-overs, all served, one at a time, tokens rising", fmt.Sprintf("%.0f", r.get(swarm, "hand-overs"))},
		[]string{"time for each", milliseconds(r.get(swarm, "hand-over-ms"))},
		[]string{"acquire + release with nobody waiting, before it", milliseconds(r.get(swarm, "acquire+release-ms"))},
		[]string{"ratio", fmt.Sprintf("**%.2f**", r.get(swarm, overFree))},
		[]string{"commands for each, of all processes", fmt.Sprintf("%.1f", r.get(swarm, "commands/hand-over"))},
		[]string{"longest wait of one waiter", milliseconds(1000 * r.get(swarm, "longest-wait-s"))},
		[]string{"most hand-overs in a row within one process", fmt.Sprintf("%.0f", r.get(swarm, "in-a-row"))},
	), r.err
}

func followers(measured results) (string, error) {
	r := &reader{results: measured}
	rows := [][]string{{"1,000 followers", "requests a follower and minute", "US dollars a month for all"}}
	for _, c := range []struct{ what, name string }{
		{"1,000 processes wait for one name", "1000x1"}, {"10 processes wait for the same 100 names each", "10x100"},
	} {
		rows = append(rows, []string{c.what, fmt.Sprintf("%.1f", r.get(following+c.name, "calls/follower/min")),
			fmt.Sprintf("%.2f", r.get(following+c.name, "USD/month/1000followers"))})
	}
	return table(rows...), r.err
}

func spread(measured results) (string, error) {
	r := &reader{results: measured}
	get := func(unit string) float64 { return r.get(spreading, unit) }
	text := table(
		[]string{"256 partitions, TTL 15 s", "even after", "moved", "least possible"},
		[]string{"1 instance", fmt.Sprintf("%.1f s", get("even-on-1-s")), "256", "256"},
		[]string{"7 join it: 8", fmt.Sprintf("%.1f s", get("even-on-8-s")), fmt.Sprintf("%.0f", get("moves-to-8")), fmt.Sprintf("%.0f", get("least-to-8"))},
		[]string{"2 leave, 1 is cut off: 5", fmt.Sprintf("%.1f s", get("even-on-5-s")), fmt.Sprintf("%.0f", get("moves-to-5")), fmt.Sprintf("%.0f", get("least-to-5"))},
	)
	text += fmt.Sprintf("\nWhile nothing happens an instance sends %.0f looks and %.0f renewals a minute.\n", get("idle-looks/min"), get("idle-renewals/min"))
	return text, r.err
}
