package main

import (
	"context"
	"encoding/json"
	"errors"
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
	if err := (describe.Lock{Record: r}).WriteStatus(&text, "mem:"); err != nil || !strings.Contains(text.String(), "shared by  2") ||
		strings.Count(text.String(), "holder ") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
	if got, want := describe.Owner(r), "two and 1 more"; got != want {
		t.Errorf("the owner is %q, want %q", got, want)
	}
	line, err := json.Marshal(describe.JSON(r))
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

// A line of a change says how many share the lock.
func TestChangesOfSharedLocks(t *testing.T) {
	var out strings.Builder
	r := driver.Record{Name: "cache", State: driver.StateHeld}
	for i, owner := range []string{"web-1", "web-2", "web-3"} {
		r.Holders = append(r.Holders, driver.Holder{Owner: owner, Token: uint64(i + 1), Remaining: 28 * time.Second, RemainingKnown: true})
	}
	err := (&changeWriter{w: &out}).write(r)
	if want := `cache  held by "web-3" (token 3, 28s left unless renewed) and 2 more`; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%q, %v", out.String(), err)
	}
}
