package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// blocks maps the name of each block of the page to the function that writes it.
var blocks = map[string]func(results) (string, error){
	"machine": machine, "targets": targets, "calls": calls, "questions": questions, "handoff": handoff,
	"takeover": takeover, "leases": heldLeases, "waiters": waiters, "followers": followers, "partitions": partitions, "steps": steps,
	"waiting": waiting, "server-cost": serverCost, "file": files, "leases-memory": leaseMemory,
}

// Names of benchmarks, as in results.
const (
	scaleBench           = "test/bench/scale."
	benchMongoRatio      = "drivers/mongo.Ratio/"
	benchAzureRatio      = "drivers/azblob.Ratio/"
	benchQuestions       = "internal/engine.Questions/"
	benchHandoff         = scaleBench + "HandOver"
	benchTwo             = scaleBench + "HandOverProcesses"
	benchHandoffSteps    = scaleBench + "HandOverSteps"
	benchHandoffPolled   = scaleBench + "HandOverPolled"
	benchHandoffArticle  = scaleBench + "HandOverArticle"
	benchTakeover        = scaleBench + "TakeOver"
	benchTakeoverArticle = scaleBench + "TakeOverArticle"
	benchLeases          = scaleBench + "Leases/"
	benchWaiters         = scaleBench + "Waiters"
	benchFollowers       = "drivers/azblob.Followers/"
	benchFileHandoff     = scaleBench + "FileHandOver"
	benchFileStandby     = scaleBench + "FileStandby"
	benchLeaseMemory     = "leases.LeasesInOneProcess/"
	benchPartitions      = "test/bench/partitions.Partitions"
	handoffRatio         = "handoff/acquire+release"
	processesHandoff     = "hints:handoff"
	bench10000Leases     = benchLeases + "10000"
	leasesTarget         = "10,000 leases, one process, TTL 15 s"
	waitersTarget        = "1,000 waiters in 10 processes on one name"
)

// leaseCounts are the cases of the benchmark of many leases.
var leaseCounts = []int{100, 1000, 10000}

func machine(r results) (string, error) {
	if _, measured := r.metrics[benchHandoff]; !measured {
		return "", &missingError{benchHandoff} // the machine of a few benchmarks is not that of the page
	}
	return machineLine(r)
}

func machineLine(r results) (string, error) {
	if r.cpu == "" {
		return "", &missingError{"the processor"}
	}
	return fmt.Sprintf("Measured on %s: %d processors (%s), %s/%s, %s; servers and clients on this one machine, over loopback.%s\n",
		time.Now().UTC().Format("2 January 2006"), runtime.NumCPU(), r.cpu, runtime.GOOS, runtime.GOARCH, runtime.Version(), loadAverage()), nil
}

// loadAverage says how busy the machine was, where the system reports it. Results measured beside
// other work say little.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 3 {
		return ""
	}
	return fmt.Sprintf("\nLoad average of the last 15 minutes of the run: %s.", fields[2])
}

// table formats a Markdown table. The first row is the header.
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

// target is a performance target of the project.
type target struct {
	what, limit string
	measured    string
	reached     bool
}

func targets(measured results) (string, error) {
	r := &reader{results: measured}
	all := []target{}
	for _, c := range []struct{ what, benchmark string }{
		{"MongoDB: acquire a new name, compared with a conditional upsert", benchMongoRatio + "AcquireNewConditional"},
		{"MongoDB: acquire again, compared with a conditional upsert", benchMongoRatio + "AcquireAgainConditional"},
		{"MongoDB: renew, compared with an update", benchMongoRatio + "Renew"},
		{"MongoDB: release, compared with an update that keeps the record", benchMongoRatio + "ReleaseKept"},
		{"Azure: acquire and release, compared with the same requests", benchAzureRatio + "AcquireAndRelease"},
		{"Azure: renew, compared with the same request", benchAzureRatio + "Renew"},
	} {
		x := r.get(c.benchmark, "ratio")
		all = append(all, target{c.what, "≤ 1.05", fmt.Sprintf("%.3f", x), x <= 1.05})
	}
	allocations := r.get(benchQuestions+"IsLeader", "allocs/op") + r.get(benchQuestions+"HoldErr", "allocs/op") +
		r.get(benchQuestions+"TokenFrom", "allocs/op")
	handoff, takeover := r.get(benchHandoff, handoffRatio), r.get(benchTakeover, "takeover-p99-ms")
	lost, saved, bytes, goroutines := r.get(bench10000Leases, "lost"), r.get(bench10000Leases, "one-by-one/batched"),
		r.get(bench10000Leases, "bytes/lease"), r.get(bench10000Leases, "goroutines")
	many := r.get(benchWaiters, handoffRatio)
	all = append(all,
		target{"`IsLeader`, `Hold.Err`, `TokenFromContext`: allocations", "0", fmt.Sprintf("%.0f", allocations), allocations == 0},
		target{"change of holder after a release, relative to acquire + release, p50", "≤ 1.5", fmt.Sprintf("%.2f", handoff), handoff <= 1.5},
		target{"takeover after a crash, from the expiry, p99", "≤ 100 ms", fmt.Sprintf("%.0f ms", takeover), takeover <= 100},
		target{fmt.Sprintf("%s, held %s: lost", leasesTarget, seconds(r.get(bench10000Leases, "held-s"))), "0", fmt.Sprintf("%.0f", lost),
			lost == 0},
		target{"the same: commands, compared with one for each lease", "≤ 1/30", fmt.Sprintf("1/%.0f", saved), saved >= 30},
		target{"the same: heap and stacks for each lease", "≤ 1 KiB", kib(bytes), bytes <= 1024},
		target{"the same: goroutines for each lease", "0", fmt.Sprintf("%.0f for all", goroutines), goroutines < 100},
		// otherwise the benchmark fails and reports nothing
		target{fmt.Sprintf("%s, %.0f changes of holder: lost", waitersTarget, r.get(benchWaiters, "handoffs")), "0", "0", true},
		target{"the same: a change of holder, relative to acquire + release", "≤ 1.5", fmt.Sprintf("%.2f", many), many <= 1.5},
	)
	rows := [][]string{{"target", "", "measured", ""}}
	for _, t := range all {
		verdict := "reached"
		if !t.reached {
			verdict = "**not reached**"
		}
		rows = append(rows, []string{t.what, t.limit, t.measured, verdict})
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
