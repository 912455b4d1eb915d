package main

import (
	"bytes"
	"context"
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

// binary is the tests of a package, built with all mutants.
type binary struct {
	dir  string // of the package, below the root folder
	path string
	args []string
	measured
}

// measured is what the tests of a binary do without a mutant.
type measured struct {
	Sum   string           // of the binary
	Tests map[string]*test // those at the top
	Units []string         // that are counted: tests, and clauses
}

// test is a test by itself.
type test struct {
	CPU, Took time.Duration
	Reaches   []int // the mutants whose functions it calls
}

// meeting lists the tests that call the function of a mutant.
func (b *binary) meeting(number int) (names []string) {
	for name, t := range b.Tests {
		if slices.Contains(t.Reaches, number) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tested are the packages whose tests run: those that need no server, and can fail by a change of the library. By module.
var tested = map[string][]string{
	".": {
		".", "adapters/certmagiclock", "adapters/cronlock", "adapters/gocronlock", "adapters/gooselock", "adapters/internal/namedlock",
		"adapters/migratelock", "adapters/redsync", "driver/cas", "driver/lockrecord", "driver/lockstate",
		"driver/waitqueue", "drivers/file", "drivers/memory", "holdfasttest", "internal/election", "internal/engine",
		"internal/engine/waiter", "internal/lockview", "internal/renewal", "internal/timing", "leases", "lockertest",
		"migrating", "partitions", "readiness", "test/promises", "test/scalesim", "web",
	},
	"otelholdfast": {"otelholdfast"},
	"test/sim":     {"test/sim"},
}

// more are arguments of some of the binaries.
var more = map[string][]string{"test/sim": {"-test.run=^TestSchedules$", "-sim.count=60"}}

// build builds all binaries with the overlay, or finds those that were built before.
func build(ctx context.Context, root, overlay, dir string) ([]*binary, error) {
	var all []*binary
	for _, module := range slices.Sorted(maps.Keys(tested)) {
		args := []string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", dir + string(filepath.Separator)}
		for _, pkg := range tested[module] {
			rel, err := filepath.Rel(module, pkg)
			if err != nil {
				return nil, err
			}
			args = append(args, "./"+filepath.ToSlash(rel))
			name := filepath.Base(pkg)
			if pkg == "." {
				name = "holdfast" // of the module
			}
			all = append(all, &binary{dir: pkg, path: filepath.Join(dir, name+".test"), args: more[pkg]})
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = filepath.Join(root, filepath.FromSlash(module))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the tests of %s: %w\n%s", module, err, out)
		}
	}
	return all, nil
}

// outcome is what one run of a binary has shown.
type outcome struct {
	failed  map[string]bool // tests and their subtests
	ended   map[string]bool // failed ones too
	running []string        // when the program crashed or hung
	exit    bool            // not 0
	hung    bool
	cpu     time.Duration
	output  []byte
}

var event = regexp.MustCompile(`(?:=== (RUN|PAUSE|CONT)\s+|^\s*--- (PASS|FAIL|SKIP): )(\S+)`)

// run runs tests of a binary, or all, but not those that are skipped.
func (b *binary) run(ctx context.Context, root string, number int, only, skip []string, env ...string) (*outcome, error) {
	args := append([]string{"-test.v=test2json", "-test.short", "-test.parallel=1", "-test.timeout=0"}, b.args...)
	limit, patience := 5*time.Minute, 20*time.Minute
	if len(only) > 0 {
		limit, patience = 10*time.Second, 2*time.Minute // another program may need the processors
		patterns := make([]string, len(only))
		for i, name := range only {
			limit, patience = limit+3*b.Tests[name].CPU, patience+5*b.Tests[name].Took
			patterns[i] = pattern(name)
		}
		args = append(args, "-test.run="+strings.Join(patterns, "|"))
	}
	if len(skip) > 0 {
		args = append(args, "-test.skip="+strings.Join(skip, "|"))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	script := fmt.Sprintf(`ulimit -t %d; ulimit -v 8000000 2>/dev/null; exec "$0" "$@"`, int(limit.Seconds()))
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, b.path}, args...)...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(b.dir))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOMEMLIMIT=1GiB", "HOLDFAST_MUTANT="+strconv.Itoa(number))
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = 5 * time.Second // of processes that a test has left
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	o := parse(out)
	o.output, o.exit, o.cpu = out, err != nil, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	o.hung = exit != nil && exit.ExitCode() < 0 // a signal: that of one of the limits
	return o, nil
}

// parse reads the output of tests with -test.v=test2json, in which a control character precedes each event.
func parse(out []byte) *outcome {
	o := &outcome{failed: map[string]bool{}, ended: map[string]bool{}}
	active := map[string]bool{}
	for line := range bytes.Lines(out) {
		for part := range bytes.SplitSeq(line, []byte{0x16}) {
			m := event.FindSubmatch(part)
			if m == nil {
				continue
			}
			name := string(m[3])
			switch string(m[1]) + string(m[2]) {
			case "RUN", "CONT":
				active[name] = true
			case "PAUSE":
				delete(active, name)
			case "FAIL":
				o.failed[name] = true
				fallthrough
			default:
				o.ended[name] = true
				delete(active, name)
			}
		}
	}
	o.running = slices.Sorted(maps.Keys(active))
	return o
}

// finished is what the output ends with unless the program crashed.
var finished = regexp.MustCompile(`(?m)^\x16?(PASS|FAIL)$`)

// clauses are the tests whose subtests count by themselves: each of the conformance suite's checks another rule.
var clauses = regexp.MustCompile(`^TestConformance[^/]*`)

// unit returns the test, or the clause, of which a test is a part.
func unit(name string) string {
	if clauses.MatchString(name) {
		return name
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}

// innermost drops the tests of which a subtest is in the list, too.
func innermost(names []string) (rest []string) {
	slices.Sort(names)
	for i, name := range names {
		if i+1 == len(names) || !strings.HasPrefix(names[i+1], name+"/") {
			rest = append(rest, name)
		}
	}
	return rest
}

const (
	mostCrashes = 40
	mostHangs   = 2
	// unknown stands in the list of a binary for the tests that have not run, because too many others have crashed.
	unknown = "…"
	// exited stands for what follows the tests, such as a check for goroutines that are left.
	exited = "exit"
	// fewFailures are repeated.
	fewFailures = 3
)

// killers runs tests of a binary with a mutant and lists those that fail. After a crash, the rest runs again.
func (b *binary) killers(ctx context.Context, root string, number int, only []string) (failed []string, err error) {
	found, skip := map[string]bool{}, map[string]bool{}
	crashes, hangs := 0, 0
	for {
		o, err := b.run(ctx, root, number, only, slices.Sorted(maps.Keys(skip)))
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		before := len(skip)
		for _, name := range innermost(units(slices.Collect(maps.Keys(o.ended)))) { // a crash ends the parents, too, of what crashes
			skip[pattern(name)] = true
		}
		for _, name := range innermost(units(slices.Collect(maps.Keys(o.failed)))) {
			found[name] = true
		}
		if !o.hung && (!o.exit || finished.Match(o.output[max(0, len(o.output)-500):])) {
			if o.exit && len(found) == 0 {
				found[exited] = true
			}
			break
		}
		for _, name := range innermost(units(o.running)) {
			found[name], skip[pattern(name)] = true, true
		}
		if crashes++; o.hung {
			hangs++
		}
		if len(skip) == before || crashes >= mostCrashes || hangs >= mostHangs {
			found[unknown] = true
			break
		}
	}
	failed = slices.Sorted(maps.Keys(found))
	if n := len(failed); crashes > 0 || n == 0 || n > fewFailures || found[exited] {
		return failed, nil
	}
	return b.confirm(ctx, root, number, failed)
}

// confirm returns those of a few tests that fail once more: it may have been the machine.
func (b *binary) confirm(ctx context.Context, root string, number int, failed []string) (again []string, err error) {
	var only []string
	for _, name := range failed {
		top, _, _ := strings.Cut(name, "/")
		only = append(only, top)
	}
	o, err := b.run(ctx, root, number, slices.Compact(only), nil)
	if err != nil {
		return nil, err
	}
	for _, name := range failed {
		if o.failed[name] || slices.Contains(o.running, name) {
			again = append(again, name)
		}
	}
	return again, nil
}

func units(names []string) (all []string) {
	for _, name := range names {
		all = append(all, unit(name))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pattern is the regular expression of -test.skip for a test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// measure runs the tests of a binary without a mutant, all of which must pass: once together, and then each alone, to see how long it
// takes and which mutants it can meet. What was measured of this binary before still counts.
func (b *binary) measure(ctx context.Context, root string) error {
	text, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	before, sum := b.path+".json", digest(32, string(text))
	if text, err := os.ReadFile(before); err == nil && json.Unmarshal(text, &b.measured) == nil && b.Sum == sum {
		return nil
	}
	o, err := b.run(ctx, root, 0, nil, nil)
	if err != nil {
		return err
	}
	if o.exit {
		return fmt.Errorf("the tests of %s fail without a mutant:\n%s", b.dir, o.output[max(0, len(o.output)-4000):])
	}
	b.measured = measured{Sum: sum, Tests: map[string]*test{}, Units: innermost(units(slices.Collect(maps.Keys(o.ended))))}
	for name := range o.ended {
		if !strings.Contains(name, "/") {
			b.Tests[name] = &test{CPU: time.Minute, Took: time.Minute}
		}
	}
	for name, t := range b.Tests {
		waitWhilePaused()
		reached := b.path + ".reached"
		_ = os.Remove(reached)
		begin := time.Now()
		o, err := b.run(ctx, root, 0, []string{name}, nil, "HOLDFAST_MUTANTS_REACHED="+reached)
		if err != nil {
			return err
		}
		if o.exit {
			return fmt.Errorf("%s of %s fails alone, without a mutant:\n%s", name, b.dir, o.output[max(0, len(o.output)-4000):])
		}
		t.CPU, t.Took = o.cpu, time.Since(begin)
		text, err := os.ReadFile(reached)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			if !slices.Contains(t.Reaches, n) { // by several processes
				t.Reaches = append(t.Reaches, n)
			}
		}
	}
	text, err = json.Marshal(b.measured)
	if err != nil {
		return err
	}
	return os.WriteFile(before, text, 0o600)
}
