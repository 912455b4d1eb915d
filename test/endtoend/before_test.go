//go:build unix

package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The last release and this one share locks on every backend: docs/upgrading.md promises it. Each scenario runs in both
// directions.
func TestBesideTheBuildBefore(t *testing.T) {
	serverprocess.Long(t, "it waits for the ends of leases")
	t.Parallel()
	before, today := builds(t)
	all := backends(t)
	for folder, url := range modules(t) {
		all[folder] = url(t)
	}
	tried := map[string]bool{}
	for name, url := range all {
		if d, _ := driver.Describe(url); d.Reach == driver.ReachProcess {
			continue // no other process sees the lock
		}
		if out, err := exec.Command(before.path, "ls", "-b", url).CombinedOutput(); err != nil && bytes.Contains(out, []byte("unknown scheme")) {
			t.Logf("the build before has no driver for %s", name)
			continue
		}
		tried[name] = true
		for _, pair := range [][2]build{{before, today}, {today, before}} {
			s := &besides{url: url, first: pair[0], second: pair[1], queues: name == "mongodb" || name == "postgres",
				unknownEnds: name == "azblob"}
			t.Run(name+"/"+s.first.name+" first", func(t *testing.T) {
				t.Parallel()
				parts := map[string]func(*testing.T){"turns": s.turns, "queue": s.queue, "renewals": s.renewals, "break": s.breaks,
					"crash": s.crash, "contention": s.contention, "data": s.data}
				if s.shares(t, before) && s.shares(t, today) {
					parts["readers"], parts["dead reader"] = s.readers, s.deadReader
				} else {
					t.Log("one of the builds has no shared locks here, so they are left out")
				}
				for part, test := range parts {
					t.Run(part, func(t *testing.T) { t.Parallel(); test(t) })
				}
			})
		}
	}
	for _, name := range []string{"azblob", "file", "mongodb", "postgres"} { // what every build has
		if !tried[name] {
			t.Errorf("nothing was tried on %s", name)
		}
	}
}

// shares reports whether a build has shared locks on the backend.
func (s *besides) shares(t *testing.T, b build) bool {
	t.Helper()
	probe := s.command(t, b, "run", "--shared", s.lock(t)+"-"+b.name, "--", "true").start()
	switch code := probe.wait(); code {
	case 0:
		return true
	case 2: // the backend allows no such option
		return false
	default:
		t.Fatalf("%v ended with code %d:\n%s", probe.cmd.Args, code, &probe.output)
		return false
	}
}

// besides are two builds on one backend.
type besides struct {
	url           string
	first, second build
	queues        bool // waiters have positions, which all processes see
	unknownEnds   bool // how a hold ended may be unknown
}

// ended reports whether a history may say got of a hold that ended in this way.
func (s *besides) ended(got, want string) bool {
	return got == want || s.unknownEnds && got == "unknown"
}

// lock is a name that no other test uses.
func (s *besides) lock(t *testing.T) string {
	return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
}

func (s *besides) command(t *testing.T, b build, args ...string) *program {
	p := newProgram(t, b.path, args...)
	p.cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+s.url)
	return p
}

// run holds the lock until the process is stopped.
func (s *besides) run(t *testing.T, b build, lock string, flags ...string) *program {
	args := append(append([]string{"run", "--ttl", shortestTTL}, flags...), lock, "--", "sh", "-c",
		"echo; echo token $HOLDFAST_TOKEN; exec sleep 1000")
	return s.command(t, b, args...).start()
}

// done expects the end of a process with a code.
func done(t *testing.T, p *program, want int) {
	t.Helper()
	if code := p.wait(); code != want {
		t.Errorf("%v ended with code %d, want %d:\n%s", p.cmd.Args, code, want, &p.output)
	}
}

const interrupted = 128 + int(syscall.SIGTERM)

// stop ends a holder, which releases the lock.
func stop(t *testing.T, p *program) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	done(t, p, interrupted)
}

// stopFor ends a holder, and expects the next to have the lock before a lease could have ended, with a greater token.
func stopFor(t *testing.T, p *program, last uint64, next *program) uint64 {
	t.Helper()
	began := time.Now()
	stop(t, p)
	return after(t, began, last, next)
}

func after(t *testing.T, began time.Time, last uint64, next *program) uint64 {
	t.Helper()
	token := next.token()
	if took := time.Since(began); took >= 15*time.Second {
		t.Errorf("%v has the lock %v after the release, a TTL or more", next.cmd.Args, took)
	}
	if token <= last {
		t.Errorf("%v has token %d after %d", next.cmd.Args, token, last)
	}
	return token
}

// seen is what status and explain say of a lock.
type seen struct {
	State   string
	Token   uint64
	Broken  bool
	Waiters int
	Holders []struct{ Token uint64 }
	History []struct {
		Token uint64
		End   string
		Mode  string
	}
}

func (s *besides) explain(t *testing.T, b build, lock string) (found seen) {
	t.Helper()
	cmd := s.command(t, b, "explain", "--json", lock).cmd
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		t.Fatalf("%s: explain: %v\n%s%s", b.name, err, out, &problems)
	}
	return found
}

// both expects that both builds read the same.
func (s *besides) both(t *testing.T, lock string) seen {
	t.Helper()
	one, two := s.explain(t, s.first, lock), s.explain(t, s.second, lock)
	if a, b := fmt.Sprint(one), fmt.Sprint(two); a != b {
		t.Errorf("the build %q reads %s, %q reads %s", s.first.name, a, s.second.name, b)
	}
	return one
}

// waits waits until n waiters stand in the queue. Without a queue it waits until the process says that it waits.
func (s *besides) waits(t *testing.T, lock string, p *program, n int) {
	t.Helper()
	p.await("waiting for")
	for end := time.Now().Add(backendTimeout); s.queues && s.explain(t, s.first, lock).Waiters != n; {
		if time.Now().After(end) {
			t.Fatalf("%q has %+v, want %d waiters", lock, s.explain(t, s.first, lock), n)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// The lock goes from one build to the other and back by releases. Each refuses the other while it is held, and reads what
// the other wrote.
func (s *besides) turns(t *testing.T) {
	lock := s.lock(t)
	holder, last := (*program)(nil), uint64(0)
	for i, b := range []build{s.first, s.second, s.first, s.second} {
		next := s.run(t, b, lock)
		if holder == nil {
			last = next.token()
		} else {
			next.await("waiting for")
			last = stopFor(t, holder, last, next)
		}
		holder = next
		for _, other := range []build{s.first, s.second} {
			done(t, s.run(t, other, lock, "--try"), 75)
		}
		if found := s.both(t, lock); found.State != "held" || found.Token != last || len(found.History) != i {
			t.Errorf("held by %s with token %d: %+v", b.name, last, found)
		}
	}
	stop(t, holder)
	for i, past := range s.both(t, lock).History {
		if !s.ended(past.End, "released") || i == 0 && past.Token != last {
			t.Errorf("past holder %d: %+v", i, past)
		}
	}
}

// Waiters of both builds stand in one queue.
func (s *besides) queue(t *testing.T) {
	lock := s.lock(t)
	holder := s.run(t, s.first, lock)
	last := holder.token()
	var waiters []*program
	for i, b := range []build{s.second, s.first, s.second, s.first} {
		waiters = append(waiters, s.run(t, b, lock))
		s.waits(t, lock, waiters[i], i+1)
	}
	left := s.run(t, s.second, lock)
	s.waits(t, lock, left, len(waiters)+1)
	left.signal(syscall.SIGTERM)
	done(t, left, interrupted)
	if !s.queues {
		return // whoever asks first; turns and contention have that
	}
	for _, next := range waiters {
		last = stopFor(t, holder, last, next)
		holder = next
	}
	stop(t, holder)
	if found := s.both(t, lock); found.Waiters != 0 || found.State != "free" {
		t.Errorf("at the end: %+v", found)
	}
}

// A holder renews for longer than its TTL while another build waits.
func (s *besides) renewals(t *testing.T) {
	lock := s.lock(t)
	holder := s.run(t, s.first, lock)
	token := holder.token()
	done(t, s.run(t, s.second, lock, "--wait", "20s"), 75)
	if found := s.both(t, lock); found.Token != token || found.State != "held" {
		t.Errorf("after its TTL: %+v", found)
	}
	stop(t, holder)
}

// A break by one build ends a holder of the other, which stops before the next has the lock.
func (s *besides) breaks(t *testing.T) {
	lock := s.lock(t)
	holder := s.run(t, s.first, lock)
	token := holder.token()
	next := s.run(t, s.second, lock)
	s.waits(t, lock, next, 1)
	done(t, s.command(t, s.second, "break", lock, "--token", strconv.FormatUint(token, 10), "--yes").start(), 0)
	done(t, holder, 76)
	if got := next.token(); got <= token {
		t.Errorf("token %d after %d", got, token)
	}
	found := s.both(t, lock)
	if len(found.History) != 1 || found.History[0].Token != token {
		t.Errorf("after the break: %+v", found)
	}
	third := s.run(t, s.first, lock)
	s.waits(t, lock, third, 1)
	done(t, s.command(t, s.first, "break", lock, "--now", "--yes").start(), 0)
	if got := third.token(); got <= found.Token {
		t.Errorf("token %d after %d", got, found.Token)
	}
	done(t, next, 76)
	stop(t, third)
	s.both(t, lock)
}

// A waiter of the other build takes the lock of a dead holder over: at its TTL, or when its guardian has released it, on Linux and
// not in the first build.
func (s *besides) crash(t *testing.T) {
	lock := s.lock(t)
	holder := s.run(t, s.first, lock)
	last := holder.token()
	next := s.run(t, s.second, lock)
	s.waits(t, lock, next, 1)
	holder.signal(syscall.SIGKILL)
	if got := next.token(); got <= last {
		t.Errorf("token %d after %d", got, last)
	}
	found := s.both(t, lock)
	if len(found.History) != 1 {
		t.Fatalf("after the crash: %+v", found)
	}
	if end := found.History[0].End; !s.ended(end, "expired") && (end != "released" || !s.first.releases) {
		t.Errorf("after the crash: %+v", found)
	}
	stop(t, next)
}

// Many short holds of both builds exclude each other.
func (s *besides) contention(t *testing.T) {
	lock, file := s.lock(t), filepath.Join(t.TempDir(), "holds")
	const rounds = 4
	ended := make(chan string)
	loop := func(b build) {
		var problems strings.Builder
		for range rounds {
			cmd := exec.Command(b.path, "run", "--ttl", shortestTTL, lock, "--", "sh", "-c",
				`echo begin $HOLDFAST_TOKEN >>"$1"; sleep 0.1; echo end $HOLDFAST_TOKEN >>"$1"`, "sh", file)
			cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+s.url)
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(&problems, "%s: %v\n%s", b.name, err, out)
			}
		}
		ended <- problems.String()
	}
	all := []build{s.first, s.second, s.first, s.second}
	for _, b := range all {
		go loop(b)
	}
	for range all {
		if problem := <-ended; problem != "" {
			t.Error(problem)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	if want := 2 * rounds * len(all); len(lines) != want {
		t.Fatalf("%d lines, want %d", len(lines), want)
	}
	for i, last := 0, 0; i < len(lines); i += 2 {
		var began, ended int
		if _, err := fmt.Sscanf(lines[i]+" "+lines[i+1], "begin %d end %d", &began, &ended); err != nil || began != ended || began <= last {
			t.Fatalf("%q, %q after token %d: %v", lines[i], lines[i+1], last, err)
		}
		last = began
	}
}

// Each build reads the data that the other has stored with a lock.
func (s *besides) data(t *testing.T) {
	lock := s.lock(t)
	for i, b := range []build{s.first, s.second, s.first} {
		value := fmt.Sprintf("note %d of %s", i, b.name)
		done(t, s.command(t, b, "data", "set", lock, value).start(), 0)
		for _, reader := range []build{s.first, s.second} {
			got := s.command(t, reader, "data", "get", lock).start()
			done(t, got, 0)
			got.await(value)
		}
	}
}

// Readers of both builds share a lock and exclude writers of both. The second reader is broken by the other build, the
// first one releases, and then a writer has the lock.
func (s *besides) readers(t *testing.T) {
	lock := s.lock(t)
	one, two := s.run(t, s.first, lock, "--shared"), s.run(t, s.second, lock, "--shared")
	first, second := one.token(), two.token()
	for _, b := range []build{s.first, s.second} {
		done(t, s.run(t, b, lock, "--try"), 75)
		done(t, s.command(t, b, "run", "--try", "--shared", lock, "--", "true").start(), 0)
	}
	if found := s.both(t, lock); len(found.Holders) != 2 {
		t.Errorf("with two readers: %+v", found)
	}
	writer := s.run(t, s.first, lock)
	s.waits(t, lock, writer, 1)
	var late *program
	if s.queues {
		late = s.run(t, s.second, lock, "--shared")
		s.waits(t, lock, late, 2) // behind the writer
	}
	done(t, s.command(t, s.first, "break", lock, "--token", strconv.FormatUint(second, 10), "--yes").start(), 0)
	done(t, two, 76)
	stop(t, one)
	token := writer.token() // after the broken reader's lease
	if token <= max(first, second) {
		t.Errorf("a writer has token %d after readers with %d and %d", token, first, second)
	}
	if late != nil {
		token = stopFor(t, writer, token, late)
		writer = late
	}
	stop(t, writer)
	if found := s.both(t, lock); found.State != "free" || len(found.History) == 0 || found.History[0].Token != token {
		t.Errorf("at the end: %+v", found)
	}
}

// A reader of one build dies, and its lease ends. The release of the last living one, of the other build, makes the lock free
// for a writer of the former.
func (s *besides) deadReader(t *testing.T) {
	lock := s.lock(t)
	dead, living := s.run(t, s.first, lock, "--shared"), s.run(t, s.second, lock, "--shared")
	last := max(dead.token(), living.token())
	dead.signal(syscall.SIGKILL)
	writer := s.run(t, s.first, lock)
	s.waits(t, lock, writer, 1)
	done(t, s.run(t, s.second, lock, "--wait", "18s"), 75) // the dead reader's TTL; the living one renews
	last = stopFor(t, living, last, writer)
	reader := s.run(t, s.second, lock, "--shared")
	s.waits(t, lock, reader, 1)
	last = stopFor(t, writer, last, reader)
	stop(t, reader)
	if found := s.both(t, lock); found.State != "free" || len(found.History) == 0 || found.History[0].Token != last {
		t.Errorf("at the end: %+v", found)
	}
}
