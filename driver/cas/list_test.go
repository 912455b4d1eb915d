package cas_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
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
		mustAcquire(t, l, request(name, name, time.Minute))
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

// The list of a store that never ends it ends with an error, also if each page has another name.
func TestListThatDoesNotEnd(t *testing.T) {
	for want, next := range map[string]func(page string) string{
		`page "again" comes again`:       func(string) string { return "again" },
		`page "b" comes again`:           func(page string) string { return map[string]string{"": "a", "a": "b", "b": "c", "c": "b"}[page] },
		"pages in a row have no new key": func(string) string { return fmt.Sprint(rand.Uint64()) },
	} {
		for _, items := range [][]cas.Item{nil, {{Key: keyOf("n")}}} {
			store, calls := newStore(), 0
			store.list = func(page string) ([]cas.Item, string, error) {
				if calls++; calls > 20_000 {
					return nil, "", errors.New("called without end")
				}
				return items, next(page), nil
			}
			l := open(t, store, cas.Config{})
			n := 0
			for r, err := range l.List(t.Context(), "") {
				if n++; r.Name != "" || err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("%q, %v, want %q", r.Name, err, want)
				}
			}
			if n != 1 {
				t.Errorf("%s: yielded %d times, want one error", want, n)
			}
		}
	}
}

// Pages without keys, as of a store that is shared with others, do not end a list.
func TestListWithEmptyPages(t *testing.T) {
	store := newStore()
	store.list = func(page string) ([]cas.Item, string, error) {
		n, _ := strconv.Atoi(page)
		if n < 3000 {
			return nil, strconv.Itoa(n + 1), nil
		}
		return []cas.Item{{Key: keyOf("n")}}, "", nil
	}
	l := open(t, store, cas.Config{})
	mustAcquire(t, l, request("n", "n", time.Minute))
	var got []string
	for r, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
		got = append(got, r.Name)
	}
	if !slices.Equal(got, []string{"n"}) {
		t.Errorf("listed %q", got)
	}
}
