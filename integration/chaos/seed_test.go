//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/history"
)

// The same seed injects the same faults in the same order for the same time. Each fault is
// undone.
func testSeeds(t *testing.T) {
	first, again, other := simulate(t, 1), simulate(t, 1), simulate(t, 2)
	if len(first) < 20 {
		t.Errorf("only %d faults in an hour", len(first))
	}
	if !slices.Equal(first, again) {
		t.Errorf("seed 1 injects\n%v, and then\n%v", first, again)
	}
	if slices.Equal(first, other) {
		t.Error("another seed injects the same faults")
	}
}

// simulate runs an injector with faults that do nothing for an hour of fake time. It returns
// which faults it injected, and when.
func simulate(t *testing.T, seed uint64) (log []string) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		open := 0
		step := func(name string, by int) func(context.Context) error {
			return func(context.Context) error {
				open += by
				log = append(log, fmt.Sprint(name, by, " after ", time.Since(begin)))
				return nil
			}
		}
		var faults []faultKind
		for _, name := range []string{"fault A", "fault B", "fault C"} {
			faults = append(faults, faultKind{name, injectAndUndo(step(name, 1), step(name, -1)), 0, time.Minute})
		}
		unsupported := func(context.Context) error {
			log = append(log, env.ErrUnsupported.Error())
			return env.ErrUnsupported
		}
		faults = append(faults, faultKind{"unsupported", injectAndUndo(unsupported, nil), 0, time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := faultInjector{t: t, rec: rec, random: rand.New(rand.NewPCG(seed, 0)), maxInterval: time.Minute, faults: faults}
		s.run(ctx)
		if open != 0 {
			t.Errorf("%d faults were not undone", open)
		}
	})
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := history.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range h.Faults {
		if f.Note == "unsupported" {
			t.Errorf("%q was recorded but never injected", f.Note)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(log), func(s string) bool { return s != env.ErrUnsupported.Error() })); n > 1 {
		t.Errorf("an unsupported fault was tried %d times", n)
	}
	return log
}
