package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Commands that are run with --shared have the lock together, and one without it is refused. The status shows all
// holders, and break wants to know which one.
func TestRunShared(t *testing.T) {
	store := memory.NewStore()
	acquire := func(r runCmd) (*holdfast.Hold, error) {
		opts := append(r.clientOptions(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		c, err := holdfast.New(store.Locker(), opts...)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
		return c.TryLock(t.Context(), "cache")
	}
	var tokens []uint64
	for _, owner := range []string{"one", "two"} {
		h, err := acquire(runCmd{Slots: 1, Shared: true, Owner: owner, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, h.Token())
	}
	if _, err := acquire(runCmd{Slots: 1}); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("without --shared: %v", err)
	}
	if _, err := acquire(runCmd{Slots: 2, Shared: true}); !errors.Is(err, holdfast.ErrInvalid) ||
		!strings.Contains(withFlagNames(err), "--slots") {
		t.Errorf("with --slots: %v", err)
	}
	r, err := store.Locker().Inspect(t.Context(), "cache")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := writeStatus(&text, "mem:", lookedAt{Record: r}); err != nil || !strings.Contains(text.String(), "shared by  2") ||
		strings.Count(text.String(), "holder ") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
	if got, want := describe.Owner(r), "two and 1 more"; got != want {
		t.Errorf("the owner is %q, want %q", got, want)
	}
	line, err := json.Marshal(lockToJSON(r))
	if err != nil || strings.Count(string(line), `"owner":"one"`) != 1 || !strings.Contains(string(line), `"holders":[`) {
		t.Errorf("%s, %v", line, err)
	}
	if _, err := (&breakCmd{Name: "cache"}).oneHolder(r); err == nil || !strings.Contains(err.Error(), "--token") {
		t.Errorf("break of several holders: %v", err)
	}
	if one, err := (&breakCmd{Name: "cache", Token: &tokens[0]}).oneHolder(r); err != nil || one.Token != tokens[0] || one.Owner != "one" {
		t.Errorf("%+v, %v", one, err)
	}
}

// cacheRecord is that of a lock that so many holders share: the first is broken, and the second's renewal is overdue.
func cacheRecord(n int) driver.Record {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	r := driver.Record{Name: "cache", State: driver.StateHeld, Owner: "gone", Token: 99, TTL: 30 * time.Second, Remaining: 28 * time.Second,
		RemainingKnown: true, ReadAt: now}
	for i := range n {
		h := driver.Holder{Owner: fmt.Sprintf("web-%d", i+1), Token: uint64(i + 1), TTL: 30 * time.Second, Remaining: 28 * time.Second,
			RemainingKnown: true, Broken: i == 0}
		if i == 1 {
			h.Remaining = 9 * time.Second
		}
		r.Holders = append(r.Holders, h)
	}
	return r
}

// explain says who shares a lock, what is wrong with each, and what would free it; and who shared it before.
func TestExplainShared(t *testing.T) {
	everything := memory.New().Capabilities()
	x := &explanation{Record: cacheRecord(12), can: everything, info: driver.Info{Failover: driver.GrantsSurvive, History: 8}}
	x.History = []driver.Tenure{{Owner: "old", Token: 98, End: driver.EndReleased, Mode: driver.Shared}, {Owner: "older", Token: 97}}
	text := explained(t, x)
	for _, want := range []string{"cache is shared by 12 holders. The latest is web-12, token 12.",
		"  - web-1, token 1, 28s left unless renewed; broken", "  - web-2, token 2, 9s left unless renewed; a renewal is overdue",
		"  - web-3, token 3, 28s left unless renewed.", "web-10",
		"2 more are in the list", "    holdfast break cache --token 12\n", "old shared it", "older had it"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "web-11") || strings.Contains(text, "gone") || strings.Contains(text, "99") {
		t.Errorf("too much is shown:\n%s", text)
	}
	one := x.toJSON()
	if len(one.Holders) != 12 || one.History[0].Mode != "shared" || one.History[1].Mode != "exclusive" {
		t.Errorf("%+v", one)
	}
	x.Record = cacheRecord(1)
	if text := explained(t, x); !strings.Contains(text, "1 holder that shares it") || !strings.Contains(text, "--token 1\n") {
		t.Error(text)
	}
}

// A line of a change says how many share the lock.
func TestChangesOfSharedLocks(t *testing.T) {
	var out strings.Builder
	err := (&changeWriter{w: &out}).write(cacheRecord(3))
	if want := `cache  held by "web-3" (token 3, 28s left unless renewed) and 2 more`; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%q, %v", out.String(), err)
	}
}
