package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is what one means makes of one fault. The file of results has a line for each, so that a
// measurement can be interrupted and goes on later.
type result struct {
	Fault   string  `json:"fault"`
	By      string  `json:"by"`              // the package whose tests ran, or "sim"
	Found   string  `json:"found,omitempty"` // the test or the rule; empty if it was not found
	Seconds float64 `json:"seconds"`         // of the processor
	Runs    int     `json:"schedules,omitempty"`
}

// suites are the tests that run against a fault of any package, after those of its own package.
var suites = []suite{
	{".", ""}, {"test/promises", ""}, {"drivers/memory", "TestConformance"},
}

// suite is a package whose tests run.
type suite struct{ pkg, run string }

// slow are the tests of packages that need servers, narrowed to those that take seconds.
var slow = map[string]string{
	"drivers/mongo": "^(TestConformance|TestQueue|TestRelease|TestHandOver|TestRenew|TestAcquire|TestInspect|TestBreak|" +
		"TestRevision|TestHint|TestWatch|TestFence|TestRecord|TestPosition|TestNext|TestTryLock|TestList|TestData)",
	"drivers/azblob": "",
}

// costly are tests that are left out: they take half of the time of all tests of their package, or
// measure memory, which the switches of the faults need, too.
var costly = map[string]string{"internal/engine": "^TestWaitingForASteadyHolderCostsLess$", "leases": "^TestManagerCostOfALease$"}

// simulated are the packages whose code runs in the simulator.
var simulated = []string{"internal/engine", "internal/renewal", "internal/election", "internal/batchread", "internal/dispatch",
	"internal/sightings", "leases", "partitions", "driver/lockstate"}

// bench runs mutants.
type bench struct {
	ctx      context.Context
	root     string
	dir      string   // of binaries; kept, so that a later measurement need not build them again
	with     []string // the command that runs each program
	file     string   // of results
	done     map[string]map[string]result
	limit    time.Duration // of each program; the machine may be busy
	most     int
	deadline time.Time
}

// measure runs all mutants that have no result yet.
func (b *bench) measure(match *regexp.Regexp, means string) error {
	mutants, err := generate(b.root)
	if err != nil {
		return err
	}
	if b.done, err = load(b.file); err != nil {
		return err
	}
	flags, err := b.writeOverlay(mutants)
	if err != nil {
		return err
	}
	reached := map[string]map[int]bool{}
	for _, m := range mutants {
		if !match.MatchString(m.name) {
			continue
		}
		if means != "sim" {
			if err := b.byTests(m, flags, reached); err != nil {
				return err
			}
		}
		if means != "tests" && slices.Contains(simulated, m.pkg) {
			if err := b.bySimulator(m, flags); err != nil {
				return err
			}
		}
		if !b.deadline.IsZero() && time.Now().After(b.deadline) {
			return nil
		}
	}
	return nil
}

// writeOverlay writes the changed files, and returns the flags of go test.
func (b *bench) writeOverlay(mutants []*mutant) ([]string, error) {
	files, err := overlay(b.root, mutants)
	if err != nil {
		return nil, err
	}
	sum := sha256.New() // programs of another state of the code are others
	for _, path := range slices.Sorted(maps.Keys(files)) {
		sum.Write(files[path])
	}
	b.dir = filepath.Join(b.dir, hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	replace := map[string]string{}
	for path, text := range files {
		planted := filepath.Join(b.dir, strings.ReplaceAll(strings.TrimPrefix(path, b.root), string(filepath.Separator), "_"))
		if err := writeIfChanged(planted, text); err != nil {
			return nil, err
		}
		replace[path] = planted
	}
	config, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, "overlay.json")
	return []string{"test", "-c", "-vet=off", "-overlay", path}, writeIfChanged(path, config)
}

func writeIfChanged(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(path, text, 0o600)
}

// byTests runs the tests of the mutant's package, and then those of others, until one fails.
func (b *bench) byTests(m *mutant, flags []string, reached map[string]map[int]bool) error {
	own := suite{m.pkg, slow[m.pkg]}
	all := append([]suite{own}, suites...)
	if strings.HasPrefix(m.pkg, "drivers/") {
		all = all[:1]
	}
	for _, s := range all {
		r, known := b.done[m.name][s.pkg]
		if !known {
			binary, err := b.build(s.pkg, flags)
			if err != nil {
				return err
			}
			if reached[s.pkg] == nil {
				if reached[s.pkg], err = b.reach(s, binary); err != nil {
					return err
				}
			}
			r = result{Fault: m.name, By: s.pkg}
			if reached[s.pkg][m.id] {
				r.Found, r.Seconds, err = b.test(s, binary, m.id)
				if err != nil {
					return err
				}
			}
			if err := b.note(r); err != nil {
				return err
			}
		}
		if r.Found != "" {
			return nil
		}
	}
	return nil
}

// build builds the tests of a package with all mutants, unless that was done.
func (b *bench) build(pkg string, flags []string) (string, error) {
	binary := filepath.Join(b.dir, strings.ReplaceAll("test_"+pkg, "/", "_"))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	module := "github.com/holdfast-go/holdfast"
	if pkg != "." {
		module += "/" + pkg
	}
	made := fmt.Sprintf("%s.%d", binary, os.Getpid()) // another measurement may build it, too
	out, err := b.command(append([]string{"go"}, append(flags, "-o", made, module)...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	return binary, os.Rename(made, binary)
}

// command is a command that runs as the user has asked.
func (b *bench) command(args ...string) *exec.Cmd {
	args = append(slices.Clone(b.with), args...)
	cmd := exec.CommandContext(b.ctx, args[0], args[1:]...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// limited is how a program begins whose loops may not end: the limit is that of processor time, since
// a busy machine is not a fault.
func (b *bench) limited() []string {
	return []string{"sh", "-c", `ulimit -t 60; exec "$0" "$@"`}
}

func (b *bench) tests(s suite, binary string, env ...string) *exec.Cmd {
	args := append(b.limited(), binary, "-test.failfast", "-test.timeout", b.limit.String())
	if s.run != "" {
		args = append(args, "-test.run", s.run)
	}
	if skip := costly[s.pkg]; skip != "" {
		args = append(args, "-test.skip", skip)
	}
	cmd := b.command(args...)
	cmd.Dir = filepath.Join(b.root, filepath.FromSlash(s.pkg))
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// reach runs the tests without a fault, and returns the mutants whose code they reach.
func (b *bench) reach(s suite, binary string) (map[int]bool, error) {
	record := binary + ".reached"
	if _, err := os.Stat(record); err != nil {
		out, err := b.tests(s, binary, "HOLDFAST_FAULTS_REACHED="+record).CombinedOutput()
		if err != nil {
			_ = os.Remove(record)
			return nil, fmt.Errorf("%s fails without a fault: %w\n%s", s.pkg, err, out)
		}
	}
	text, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ids := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			ids[n] = true
		}
	}
	return ids, nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// test runs tests with one mutant on.
func (b *bench) test(s suite, binary string, id int) (found string, seconds float64, err error) {
	cmd := b.tests(s, binary, "HOLDFAST_FAULT="+strconv.Itoa(id))
	out, err := cmd.CombinedOutput()
	if b.ctx.Err() != nil {
		return "", 0, b.ctx.Err()
	}
	seconds = processor(cmd)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", seconds, nil
	case !errors.As(err, &exit):
		return "", 0, err
	case bytes.Contains(out, []byte("panic: test timed out")), exit.ExitCode() < 0: // by the signal of the limit
		return "hangs", seconds, nil
	}
	if m := failedTest.FindSubmatch(out); m != nil {
		return string(m[1]), seconds, nil
	}
	return "crashes", seconds, nil
}

func processor(cmd *exec.Cmd) float64 {
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
}

// bySimulator runs schedules until one fails.
func (b *bench) bySimulator(m *mutant, flags []string) error {
	if _, known := b.done[m.name]["sim"]; known {
		return nil
	}
	binary, err := b.build("test/sim", flags)
	if err != nil {
		return err
	}
	cmd := b.command(append(b.limited(), binary, "-test.run=^TestSchedules$", "-test.timeout="+b.limit.String(),
		fmt.Sprintf("-sim.count=%d", b.most))...)
	cmd.Dir = filepath.Join(b.root, "test", "sim")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "HOLDFAST_FAULT="+strconv.Itoa(m.id))
	out, err := cmd.CombinedOutput()
	if b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	r := result{Fault: m.name, By: "sim", Seconds: processor(cmd)}
	if err != nil {
		r.Found, r.Runs = "crashes", 1
		if cmd.ProcessState.ExitCode() < 0 || bytes.Contains(out, []byte("panic: test timed out")) {
			r.Found = "hangs"
		}
		if how := howLong.FindSubmatch(out); how != nil {
			r.Runs, _ = strconv.Atoi(string(how[1]))
		}
		if rule := firstRule.FindSubmatch(out); rule != nil {
			r.Found = string(rule[1])
		}
	}
	return b.note(r)
}

// note keeps a result.
func (b *bench) note(r result) error {
	if b.done[r.Fault] == nil {
		b.done[r.Fault] = map[string]result{}
	}
	b.done[r.Fault][r.By] = r
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Printf("%-14s %-30s %6.1f s  %s\n", r.By, cmpOr(r.Found, "–"), r.Seconds, r.Fault)
	f, err := os.OpenFile(b.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// load reads results.
func load(file string) (map[string]map[string]result, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	done := map[string]map[string]result{}
	for line := range strings.Lines(string(text)) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if done[r.Fault] == nil {
			done[r.Fault] = map[string]result{}
		}
		done[r.Fault][r.By] = r
	}
	return done, nil
}
