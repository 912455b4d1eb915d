// Command mutants changes the library in small ways, one at a time, and lists all tests that fail by each change: the matrix of tests and
// mutants. It changes no file: all mutants are built into the tests together, by an overlay, and the environment chooses one.
//
//	go run ./mutants              # all mutants that the table does not have yet
//	go run ./mutants -summary     # what the table says
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/test/sim/overlay"
)

var (
	list    = flag.Bool("list", false, "list the mutants, and stop")
	summary = flag.Bool("summary", false, "say what the table shows, and stop")
	run     = flag.String("run", "", "a regular expression for package, function and text of the mutants")
	from    = flag.Int("from", 1, "the number of the first mutant")
	to      = flag.Int("to", 1<<30, "the number of the last mutant")
	most    = flag.Duration("for", 0, "begin with no further mutant after this time")
	again   = flag.Bool("again", false, "also those that the table has")
	jobs    = flag.Int("jobs", 2, "how many test binaries run at a time")
	table   = flag.String("table", "", "the file of the table (default test/sim/mutants/matrix.tsv)")
	cache   = flag.String("cache", "", "a folder for binaries (default .cache/mutants)")
	keep    = flag.String("overlay", "", "write the overlay with all mutants into this folder, and stop: HOLDFAST_MUTANT=n chooses one")
	pause   = flag.String("pause", "", "wait while this file exists")
)

func main() {
	flag.Parse()
	if err := matrix(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func matrix(ctx context.Context) error {
	match, err := regexp.Compile(*run)
	if err != nil {
		return err
	}
	root, err := overlay.Root(ctx)
	if err != nil {
		return err
	}
	if *table == "" {
		*table = filepath.Join(root, "test", "sim", "mutants", "matrix.tsv")
	}
	if *cache == "" {
		*cache = filepath.Join(root, ".cache", "mutants")
	}
	mutants, sources, err := all(root)
	if err != nil {
		return err
	}
	rows, err := read(*table)
	if err != nil {
		return err
	}
	whole := filepath.Join(*cache, filepath.Base(*table)) // with all names
	before, err := read(whole)
	if err != nil {
		return err
	}
	for id, r := range before {
		if short := rows[id]; short == nil || short.source == r.source {
			rows[id] = r
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool {
		known := !*again && rows[m.ID] != nil && rows[m.ID].source == m.Source
		return m.number < *from || m.number > *to || known && !*list || !match.MatchString(m.File+" "+m.Func+" "+m.What)
	})
	switch {
	case *summary:
		return summarize(rows, mutants, *cache)
	case *keep != "":
		_, err := overlay.Write(root, *keep, schemata(sources, mutants))
		return err
	case *list:
		for _, m := range chosen {
			becomes := strings.Join(strings.Fields(m.text), " ")
			fmt.Printf("%d\t%s\t%s\t%s:%s\t%s\t%s\n", m.number, m.ID, m.Kind, m.File, m.Func, m.What, becomes)
		}
		return nil
	case len(chosen) == 0:
		fmt.Println("the table has all of them")
		return nil
	}
	binaries, err := prepare(ctx, root, sources, mutants)
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, m := range chosen {
		if *most > 0 && time.Since(begin) > *most {
			break
		}
		start := time.Now()
		killers, err := m.test(ctx, root, binaries)
		if err != nil {
			return err
		}
		rows[m.ID] = m.row(killers)
		if err := errors.Join(write(whole, rows, mutants, math.MaxInt), write(*table, rows, mutants, fewNames)); err != nil {
			return err
		}
		fmt.Printf("%d of %d\t%s\t%s\t%d killers\t%v\n", m.number, len(mutants), m.ID, m.What, len(killers),
			time.Since(start).Round(time.Second))
	}
	return nil
}

// prepare builds the binaries and runs each without a mutant.
func prepare(ctx context.Context, root string, sources []*source, mutants []*mutant) ([]*binary, error) {
	config, err := overlay.Write(root, filepath.Join(*cache, "overlay"), schemata(sources, mutants))
	if err != nil {
		return nil, err
	}
	binaries, err := build(ctx, root, config, *cache)
	if err != nil {
		return nil, err
	}
	var tests strings.Builder
	for _, b := range binaries {
		waitWhilePaused()
		if err := b.measure(ctx, root); err != nil {
			return nil, err
		}
		var cpu, most time.Duration
		slowest := ""
		for name, t := range b.Tests {
			if cpu += t.CPU; t.CPU >= most {
				most, slowest = t.CPU, name
			}
		}
		fmt.Printf("%s: %d tests take %v of a processor, %s %v\n", b.dir, len(b.Tests), cpu.Round(10*time.Millisecond), slowest,
			most.Round(10*time.Millisecond))
		for _, name := range b.Units {
			tests.WriteString(b.dir + "\t" + name + "\n")
		}
	}
	return binaries, os.WriteFile(filepath.Join(*cache, testsFile), []byte(tests.String()), 0o600)
}

// test runs all tests that call the mutant's function, and returns those that fail, each after the folder of its package.
func (m *mutant) test(ctx context.Context, root string, binaries []*binary) ([]string, error) {
	var mu sync.Mutex
	var failed []string
	var errs []error
	var working sync.WaitGroup
	places := make(chan struct{}, *jobs)
	for _, b := range binaries {
		meeting := b.meeting(m.number)
		if len(meeting) == 0 {
			continue
		}
		places <- struct{}{}
		waitWhilePaused()
		working.Go(func() {
			defer func() { <-places }()
			names, err := b.killers(ctx, root, m.number, meeting)
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				failed = append(failed, b.dir+" "+name)
			}
			errs = append(errs, err)
		})
	}
	working.Wait()
	slices.Sort(failed)
	return failed, errors.Join(errs...)
}

func waitWhilePaused() {
	for *pause != "" {
		if _, err := os.Stat(*pause); err != nil {
			return
		}
		time.Sleep(2 * time.Second)
	}
}
