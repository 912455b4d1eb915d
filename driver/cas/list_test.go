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

// The list of a store that never ends it ends with an error, also if each page has another name. Pages without keys, as of a store that is
// shared with others, do not end a list.
func TestListThatDoesNotEnd(t *testing.T) {
	for want, next := range map[string]func(page string) string{
		`page "again" comes again`:       func(string) string { return "again" },
		`page "b" comes again`:           func(page string) string { return map[string]string{"": "a", "a": "b", "b": "c", "c": "b"}[page] },
		"pages in a row have no new key": func(string) string { return fmt.Sprint(rand.Uint64()) },
		"": func(page string) string { // it ends
			if n, _ := strconv.Atoi(page); n < 3000 {
				return strconv.Itoa(n + 1)
			}
			return ""
		},
	} {
		for _, items := range [][]cas.Item{nil, {{Key: keyOf("n")}}} {
			store, calls := newStore(), 0
			store.list = func(page string) ([]cas.Item, string, error) {
				if calls++; calls > 20_000 {
					return nil, "", errors.New("called without end")
				}
				to := next(page)
				if want == "" && to != "" {
					return nil, to, nil
				}
				return items, to, nil
			}
			l := open(t, store, cas.Config{})
			if want == "" {
				mustAcquire(t, l, request("n", "n", time.Minute))
			}
			n := 0
			for r, err := range l.List(t.Context(), "") {
				n++
				switch {
				case want == "" && (err != nil || r.Name != "n"):
					t.Errorf("%q, %v", r.Name, err)
				case want != "" && (r.Name != "" || err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), want)):
					t.Errorf("%q, %v, want %q", r.Name, err, want)
				}
			}
			if wants := map[bool]int{true: 1, false: len(items)}[want != ""]; n != wants {
				t.Errorf("%s: yielded %d times, want %d", want, n, wants)
			}
		}
	}
}
