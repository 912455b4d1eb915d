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
	"github.com/holdfast-go/holdfast/integration/history"
)

// One seed brings the same faults in the same order for the same time; each is undone.
func seeds(t *testing.T) {
	first, again, other := rehearse(t, 1), rehearse(t, 1), rehearse(t, 2)
	if len(first) < 20 {
		t.Errorf("only %d faults in an hour", len(first))
	}
	if !slices.Equal(first, again) {
		t.Errorf("seed 1 brings\n%v, and then\n%v", first, again)
	}
	if slices.Equal(first, other) {
		t.Error("another seed brings the same")
	}
}

// rehearse has faults that do nothing come for an hour, in no time, and tells which
// and when.
func rehearse(t *testing.T, seed uint64) (told []string) {
	dir := t.TempDir()
	rec, err := history.NewRecorder(dir, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		open := 0
		tell := func(name string, by int) func(context.Context) error {
			return func(context.Context) error {
				open += by
				told = append(told, fmt.Sprint(name, by, " after ", time.Since(begin)))
				return nil
			}
		}
		var faults []disturbance
		for _, name := range []string{"wind", "rain", "hail"} {
			faults = append(faults, disturbance{name, between(tell(name, 1), tell(name, -1)), 0, time.Minute})
		}
		none := func(context.Context) error {
			told = append(told, env.ErrUnsupported.Error())
			return env.ErrUnsupported
		}
		faults = append(faults, disturbance{"snow", between(none, nil), 0, time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		s := storm{t: t, rec: rec, random: rand.New(rand.NewPCG(seed, 0)), gap: time.Minute, faults: faults}
		s.rage(ctx)
		if open != 0 {
			t.Errorf("%d faults are not undone", open)
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
		if f.Note == "snow" {
			t.Errorf("%q is noted, which never came", f.Note)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(told), func(s string) bool { return s != env.ErrUnsupported.Error() })); n > 1 {
		t.Errorf("what is not possible was tried %d times", n)
	}
	return told
}
