// Command plant plants faults into the library, one at a time, and measures how long the simulator
// takes to find each. It changes no file: the compiler gets the changed text as an overlay.
//
//	go run ./plant              # all faults
//	go run ./plant -run token   # those whose name matches
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/test/sim/overlay"
)

var (
	pattern = flag.String("run", "", "a regular expression for the names of faults")
	most    = flag.Int("schedules", 3000, "how many schedules to try for each fault")
	limit   = flag.Duration("limit", 5*time.Minute, "how long to look for each fault")
	seed    = flag.Uint64("seed", 1, "the first seed")
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
	root, err := overlay.Root(ctx)
	if err != nil {
		return err
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

// plant writes the changed file and the overlay into dir, and returns the overlay.
func (f fault) plant(root, dir string) (config string, err error) {
	file := filepath.Join(root, filepath.FromSlash(f.File))
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	changed, err := f.apply(string(text))
	if err != nil {
		return "", err
	}
	return overlay.Write(root, dir, map[string]string{f.File: changed})
}

// apply returns the text of the file with the fault.
func (f fault) apply(text string) (string, error) {
	at, err := overlay.Find(f.File, text, f.Name, f.Old)
	if err != nil {
		return "", err
	}
	return text[:at] + f.New + text[at+len(f.Old):], nil
}

var (
	firstRule = regexp.MustCompile(`seed \d+: ([^:]+): `)
	howLong   = regexp.MustCompile(`after (\d+) schedules and ([^;]+);`)
)

// find builds the simulator with the fault and runs it.
func (f fault) find(ctx context.Context, root, dir string) (string, error) {
	config, err := f.plant(root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", config, "-o", binary, "github.com/holdfast-go/holdfast/test/sim")
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
