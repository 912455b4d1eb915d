package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// blocks write the parts of the page.
var blocks = map[string]func(results) (string, error){
	"machine": machine, "targets": targets, "calls": calls, "questions": questions, "hand-over": handOver,
	"take-over": takeOver, "leases": heldLeases, "waiters": waiters, "followers": followers, "partitions": spread, "steps": steps,
}

// Benchmarks, as results name them.
const (
	mongoRatio  = "drivers/mongo.Ratio/"
	azureRatio  = "drivers/azblob.Ratio/"
	asking      = ".Questions/"
	passing     = "internal/endtoend.HandOver"
	processes   = "internal/endtoend.HandOverProcesses"
	parts       = "internal/endtoend.HandOverSteps"
	polled      = "internal/endtoend.HandOverPolled"
	article     = "internal/endtoend.HandOverArticle"
	crash       = "internal/endtoend.TakeOver"
	crashed     = "internal/endtoend.TakeOverArticle"
	held        = "internal/endtoend.Leases/"
	swarm       = "internal/endtoend.Waiters"
	following   = "drivers/azblob.Followers/"
	spreading   = "internal/partbench.Partitions"
	overFree    = "hand-over/acquire+release"
	manyLeases  = held + "10000"
	mostLeases  = "10,000 leases, one process, TTL 15 s"
	mostWaiters = "1,000 waiters in 10 processes on one name"
)

// leaseCounts are the cases of the benchmark of leases held.
var leaseCounts = []int{100, 1000, 10000}

func machine(r results) (string, error) {
	if r.cpu == "" {
		return "", &absentError{"the processor"}
	}
	return fmt.Sprintf("Measured on %s: %d processors (%s), %s/%s, %s; servers and clients on this one machine, over loopback.%s\n",
		time.Now().UTC().Format("2 January 2006"), runtime.NumCPU(), r.cpu, runtime.GOOS, runtime.GOARCH, runtime.Version(), load()), nil
}

// load tells how busy the machine was, where the system does: what is measured beside other
// work says little.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 3 {
		return ""
	}
	return fmt.Sprintf("\nLoad average of the last 15 minutes of the run: %s.", fields[2])
}

// table writes a Markdown table. The first row is its head.
func table(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// target is one that the project has set itself.
type target struct {
	what, goal string
	measured   string
	reached    bool
}

func targets(measured results) (string, error) {
	r := &reader{results: measured}
	all := []target{}
	for _, c := range []struct{ what, benchmark string }{
		{"MongoDB: acquire a new name, against an upsert that is a lock", mongoRatio + "AcquireNewConditional"},
		{"MongoDB: acquire again, against an upsert that is a lock", mongoRatio + "AcquireAgainConditional"},
		{"MongoDB: renew, against an update", mongoRatio + "Renew"},
		{"MongoDB: release, against an update that keeps the record", mongoRatio + "ReleaseKept"},
		{"Azure: acquire and release, against the same requests", azureRatio + "AcquireAndRelease"},
		{"Azure: renew, against the same request", azureRatio + "Renew"},
	} {
		x := r.get(c.benchmark, "ratio")
		all = append(all, target{c.what, "≤ 1.05", fmt.Sprintf("%.3f", x), x <= 1.05})
	}
	allocations := r.get(asking+"IsLeader", "allocs/op") + r.get(asking+"HoldErr", "allocs/op") + r.get(asking+"TokenFrom", "allocs/op")
	handOver, takeOver := r.get(passing, overFree), r.get(crash, "take-over-p99-ms")
	lost, saved, bytes, goroutines := r.get(manyLeases, "lost"), r.get(manyLeases, "one-by-one/batched"), r.get(manyLeases, "bytes/lease"), r.get(manyLeases, "goroutines")
	many := r.get(swarm, overFree)
	all = append(all,
		target{"`IsLeader`, `Hold.Err`, `TokenFrom`: allocations", "0", fmt.Sprintf("%.0f", allocations), allocations == 0},
		target{"hand-over after a release, over acquire + release, p50", "≤ 1.5", fmt.Sprintf("%.2f", handOver), handOver <= 1.5},
		target{"take-over after a crash, from the expiry, p99", "≤ 100 ms", fmt.Sprintf("%.0f ms", takeOver), takeOver <= 100},
		target{fmt.Sprintf("%s, held %s: lost", mostLeases, seconds(r.get(manyLeases, "held-s"))), "0", fmt.Sprintf("%.0f", lost), lost == 0},
		target{"the same: commands, against one by one", "≤ 1/30", fmt.Sprintf("1/%.0f", saved), saved >= 30},
		target{"the same: heap and stacks for each lease", "≤ 1 KiB", kib(bytes), bytes <= 1024},
		target{"the same: goroutines for each lease", "0", fmt.Sprintf("%.0f for all", goroutines), goroutines < 100},
		target{fmt.Sprintf("%s, %.0f hand-overs: lost", mostWaiters, r.get(swarm, "hand-overs")), "0", "0", true}, // else it fails and reports nothing
		target{"the same: a hand-over over acquire + release", "≤ 2", fmt.Sprintf("%.2f", many), many <= 2},
	)
	rows := [][]string{{"target", "", "measured", ""}}
	for _, t := range all {
		verdict := "reached"
		if !t.reached {
			verdict = "**not reached**"
		}
		rows = append(rows, []string{t.what, t.goal, t.measured, verdict})
	}
	return table(rows...), r.err
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func kib(bytes float64) string {
	if bytes <= 0 {
		return "too little to measure"
	}
	return fmt.Sprintf("%.2f KiB", bytes/1024)
}
