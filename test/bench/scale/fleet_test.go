//go:build unix

package scale

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"
)

// clientsPerWorker is how many followers share a worker process where hundreds wait.
const clientsPerWorker = 25

// fleet is the worker processes of some followers.
type fleet struct {
	tb      testing.TB
	workers []*worker
	lines   chan []string // of all workers
}

// startFleet starts followers, some in each worker process, and waits until all are connected.
func startFleet(tb testing.TB, url string, count, perWorker int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, lines: make(chan []string, 10000)}
	for left := count; left > 0; left -= perWorker {
		f.workers = append(f.workers, startWriter(tb, "followers", url, min(left, perWorker), f.lines))
	}
	f.await("ready")
	return f
}

// await reads lines until every worker has written one with this word alone, and returns the
// others.
func (f *fleet) await(word string) (others [][]string) {
	f.tb.Helper()
	timeout := time.After(2 * time.Minute)
	for left := len(f.workers); left > 0; {
		if line := nextLine(f.tb, f.lines, timeout); line[0] == word {
			left--
		} else {
			others = append(others, line)
		}
	}
	return others
}

func (f *fleet) send(words ...any) {
	for _, w := range f.workers {
		w.send(words...)
	}
}

// sent returns how many commands the followers have sent.
func (f *fleet) sent() (sum float64) {
	f.tb.Helper()
	f.send("count")
	timeout := time.After(2 * time.Minute)
	for left := len(f.workers); left > 0; {
		if line := nextLine(f.tb, f.lines, timeout); line[0] == "sent" {
			sum += float64(numbers(f.tb, line[1:])[0])
			left--
		}
	}
	return sum
}

func (f *fleet) end() {
	var ending sync.WaitGroup
	for _, w := range f.workers {
		ending.Go(w.end)
	}
	ending.Wait()
}

// grant is a line of a follower.
type grant struct {
	process          int64
	token            uint64 // 0 if it was not served
	arrived, granted time.Time
}

// grants reads lines until so many grants have been read, and returns them in the order of their
// tokens.
func (f *fleet) grants(count int, limit time.Duration) (out []grant) {
	f.tb.Helper()
	for timeout := time.After(limit); len(out) < count; {
		if line := nextLine(f.tb, f.lines, timeout); line[0] == "grant" {
			out = append(out, parseGrant(f.tb, line))
		}
	}
	sortGrants(out)
	return out
}

// stop ends the waits. It returns the grants that were not yet read, and the waits that ended
// without a grant.
func (f *fleet) stop() (served, unserved []grant) {
	f.tb.Helper()
	f.send("stop")
	for _, line := range f.await("stopped") {
		switch line[0] {
		case "grant":
			served = append(served, parseGrant(f.tb, line))
		case "unserved":
			unserved = append(unserved, grant{arrived: time.Unix(0, numbers(f.tb, line[1:])[1])})
		}
	}
	sortGrants(served)
	return served, unserved
}

func parseGrant(tb testing.TB, line []string) grant {
	tb.Helper()
	n := numbers(tb, line[1:])
	return grant{process: n[0], token: uint64(n[1]), arrived: time.Unix(0, n[2]), granted: time.Unix(0, n[3])}
}

func sortGrants(all []grant) {
	slices.SortFunc(all, func(a, b grant) int { return cmp.Compare(a.token, b.token) })
}
