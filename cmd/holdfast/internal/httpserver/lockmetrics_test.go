package httpserver

import (
	"context"
	"errors"
	"iter"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exposition"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// failingList is a Locker whose listing can fail.
type failingList struct {
	driver.Locker
	fail bool
}

func (l *failingList) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Lister = l
	return c
}

func (l *failingList) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if l.fail {
		return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, errors.New("the backend fails")) }
	}
	return l.Locker.Capabilities().Lister.List(ctx, prefix)
}

// Each lock has its metrics, up to the limit, held ones first. A backend that fails is no backend without locks.
func TestLockMetrics(t *testing.T) {
	locker := &failingList{Locker: memory.NewStore().Locker()}
	client := locktest.NewClient(t, locker)
	for _, name := range []string{"a", "b"} {
		h, err := client.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Lock(t.Context(), "z", holdfast.WithTTL(time.Hour)); err != nil {
		t.Fatal(err)
	}
	scrape := func(limit int) string {
		var answer strings.Builder
		if err := exposition.Write(&answer, NewLockMetrics(t.Context(), client, "", limit).Families()); err != nil {
			t.Fatal(err)
		}
		return answer.String()
	}
	for _, c := range []struct {
		limit      int
		want, miss []string
	}{
		{2, []string{`holdfast_locks_listed 1`, `holdfast_locks\{state="held"\} 1`, `holdfast_locks\{state="free"\} 2`,
			`holdfast_locks\{state="broken"\} 0`, `holdfast_locks_omitted 1`,
			`holdfast_lock_held\{lock="z"\} 1`, `holdfast_lock_held\{lock="a"\} 0`, `holdfast_lock_holders\{lock="z"\} 1`,
			`holdfast_lock_age_seconds\{lock="z"\} \S+`,
			`holdfast_lock_remaining_seconds\{lock="z"\} 3\S+`,
			`holdfast_lock_waiters\{lock="z"\} 0`, `holdfast_lock_token\{lock="z"\} \S+`},
			[]string{`lock="b"`, `holdfast_lock_age_seconds{lock="a"}`, `holdfast_lock_remaining_seconds{lock="a"}`}},
		{0, []string{`holdfast_locks\{state="held"\} 1`, `holdfast_locks_omitted 3`}, []string{"lock="}},
	} {
		got := scrape(c.limit)
		for _, line := range c.want {
			if !regexp.MustCompile("(?m)^" + line + "$").MatchString(got) {
				t.Errorf("limit %d: no %s in\n%s", c.limit, line, got)
			}
		}
		for _, text := range c.miss {
			if strings.Contains(got, text) {
				t.Errorf("limit %d: %s in\n%s", c.limit, text, got)
			}
		}
	}
	locker.fail = true
	if got := scrape(2); !strings.Contains(got, "holdfast_locks_listed 0") || strings.Contains(got, "holdfast_locks{") {
		t.Errorf("of a backend that fails:\n%s", got)
	}
}

// A scrape of a backend that does not answer ends in time to say so. The listing goes on, and its answer is for later scrapes.
func TestLockMetricsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listings := 0
		m := &LockMetrics{limit: 1}
		m.listing = &Readiness{Context: t.Context(), Inspect: func(ctx context.Context) error {
			if listings++; listings == 1 {
				time.Sleep(scrapeTimeout + 2*time.Second)
			}
			m.latest.Store(&lockview.Snapshot{})
			return ctx.Err()
		}}
		scrape := func() string {
			var answer strings.Builder
			if err := exposition.Write(&answer, m.Families()); err != nil {
				t.Fatal(err)
			}
			return answer.String()
		}
		begun := time.Now()
		if got := scrape(); time.Since(begun) != scrapeTimeout || !strings.Contains(got, "holdfast_locks_listed 0") {
			t.Errorf("after %v:\n%s", time.Since(begun), got)
		}
		if got := scrape(); time.Since(begun) != scrapeTimeout+2*time.Second || !strings.Contains(got, "holdfast_locks_listed 1") {
			t.Errorf("after %v:\n%s", time.Since(begun), got)
		}
		if listings != 1 {
			t.Errorf("%d listings, want 1", listings)
		}
	})
}

// The page lists the metrics that there are, and no others.
func TestPageListsTheLockMetrics(t *testing.T) {
	names := func(path, pattern string) (all []string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return all
	}
	page, code := names("../../../../docs/metrics.md", "(?m)^\\| `(holdfast_lock\\w+)"), names("lockmetrics.go", `gauge\("(\w+)"`)
	if len(code) < 5 || !slices.Equal(page, code) {
		t.Errorf("the page lists %q, the code has %q", page, code)
	}
}
