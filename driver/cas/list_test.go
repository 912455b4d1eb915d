package cas_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// The pages of a store come in any order, overlap, and may be empty. Each lock is listed once, in the order of the names.
func TestListOfPages(t *testing.T) {
	l := open(t, newStore(), cas.Config{})
	var want []string
	for i := range 35 {
		name := fmt.Sprint("n", i)
		if _, err := l.TryAcquire(t.Context(), request(name, name, time.Minute)); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	slices.Sort(want)
	var got []string
	for r, err := range l.List(t.Context(), "n") {
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// samePage is a store that forgets where it was.
type samePage struct{ *memStore }

func (s samePage) List(context.Context, string, string) ([]cas.Item, string, error) {
	return nil, "again", nil
}

// A list of a store that does not advance ends.
func TestListThatDoesNotAdvance(t *testing.T) {
	l := open(t, samePage{newStore()}, cas.Config{})
	n := 0
	for r, err := range l.List(t.Context(), "") {
		if n++; r.Name != "" || err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), `page "again" is followed by itself`) {
			t.Errorf("%q, %v", r.Name, err)
		}
	}
	if n != 1 {
		t.Errorf("yielded %d times, want one error", n)
	}
}
