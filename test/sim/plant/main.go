// Command plant plants faults into the library, one at a time, and measures how long the simulator
// takes to find each. It changes no file: the compiler gets the changed text as an overlay.
//
//	go run ./plant              # all faults
//	go run ./plant -run token   # those whose name matches
//	go run ./plant -mutants f   # generated faults, by tests and by the simulator; the results go to file f
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var (
	pattern = flag.String("run", "", "a regular expression for the names of faults")
	most    = flag.Int("schedules", 3000, "how many schedules to try for each fault")
	limit   = flag.Duration("limit", 5*time.Minute, "how long to look for each fault, or to run the tests of a generated one")
	seed    = flag.Uint64("seed", 1, "the first seed")
	mutants = flag.String("mutants", "", "measure generated faults instead, and keep the results in this file")
	means   = flag.String("means", "", "by which means: tests or sim; all if empty")
	builds  = flag.String("builds", "", "the folder of the programs with generated faults")
	with    = flag.String("with", "", "a command that runs each program, such as nice")
	until   = flag.Duration("for", 0, "stop after this time")
	listed  = flag.Bool("list", false, "list the generated faults, and stop")
	page    = flag.String("table", "", "write a summary of the results of -mutants into this page, and stop")
	full    = flag.String("all", "", "the file for the table of all results, with -table")
	keep    = flag.String("overlay", "", "write the overlay of the one fault into this folder, and stop")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	match, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	root, err := findRoot(ctx)
	if err != nil {
		return err
	}
	if *listed || *mutants != "" {
		return runMutants(ctx, root, match)
	}
	dir, err := os.MkdirTemp("", "plant-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Println("| promise | planted fault | found by | schedules | time |\n|---|---|---|--:|--:|")
	var missed []string
	for _, f := range faults {
		if !match.MatchString(f.Name) {
			continue
		}
		if *keep != "" {
			_, err := f.plant(root, *keep)
			return err
		}
		found, err := f.find(ctx, root, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		fmt.Printf("| %s | %s | %s |\n", f.Promise, f.Name, found)
		if strings.HasPrefix(found, "–") {
			missed = append(missed, f.Name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("not found by %d schedules: %s", *most, strings.Join(missed, "; "))
	}
	return nil
}

// runMutants measures generated faults, or lists them.
func runMutants(ctx context.Context, root string, match *regexp.Regexp) error {
	if *listed {
		all, err := generate(root)
		for _, m := range all {
			fmt.Println(m.id, m.name)
		}
		return err
	}
	if *page != "" {
		return writeTable(root, *mutants, *page, *full)
	}
	dir, err := filepath.Abs(*builds)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b := &bench{ctx: ctx, root: root, dir: dir, with: strings.Fields(*with), file: *mutants, limit: *limit, most: *most}
	if *until > 0 {
		b.deadline = time.Now().Add(*until)
	}
	return b.measure(match, *means)
}

// findRoot returns the folder of the library's module.
func findRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdfast-go/holdfast").Output()
	return strings.TrimSpace(string(out)), err
}

// plant writes the changed file and the overlay into dir, and returns the overlay.
func (f fault) plant(root, dir string) (overlay string, err error) {
	file := filepath.Join(root, filepath.FromSlash(f.File))
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	changed, err := f.apply(string(text))
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	planted := filepath.Join(dir, strings.ReplaceAll(f.File, "/", "_"))
	if err := os.WriteFile(planted, []byte(changed), 0o600); err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]map[string]string{"Replace": {file: planted}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, config, 0o600)
}

// apply returns the text of the file with the fault.
func (f fault) apply(text string) (string, error) {
	if n := strings.Count(text, f.Old); n != 1 {
		return "", fmt.Errorf("%s has the code of the fault %q %d times, want once: change the fault with the code", f.File, f.Name, n)
	}
	return strings.Replace(text, f.Old, f.New, 1), nil
}

var (
	firstRule = regexp.MustCompile(`seed \d+: ([^:]+): `)
	howLong   = regexp.MustCompile(`after (\d+) schedules and ([^;]+);`)
)

// find builds the simulator with the fault and runs it.
func (f fault) find(ctx context.Context, root, dir string) (string, error) {
	overlay, err := f.plant(root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", binary, "github.com/holdfast-go/holdfast/test/sim")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestSchedules$", "-test.timeout=0", fmt.Sprintf("-sim.count=%d", *most),
		fmt.Sprintf("-sim.seed=%d", *seed))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400")
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "– | – | –", nil
	case !errors.As(err, &exit):
		return "", err
	}
	how := howLong.FindSubmatch(out)
	if how == nil { // a crash, or the time limit
		if ctx.Err() != nil {
			return fmt.Sprintf("– | – | over %v", *limit), nil
		}
		reason := "crash"
		if line, _, ok := bytes.Cut(out, []byte("\n")); ok {
			reason += ": " + strings.TrimSpace(string(line))
		}
		return fmt.Sprintf("%s | ? | %v", reason, time.Since(begin).Round(100*time.Millisecond)), nil
	}
	rule := "?"
	if m := firstRule.FindSubmatch(out); m != nil {
		rule = string(m[1])
	}
	return fmt.Sprintf("%s | %s | %s", rule, how[1], how[2]), nil
}
