package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// The releaser releases the locks of its holdfast, and no others: not one that was lost meanwhile, and that another holds.
func TestReleaseAfterKill(t *testing.T) {
	backend := "file:" + filepath.ToSlash(t.TempDir())
	open := func() *holdfast.Client {
		client, err := holdfast.Open(t.Context(), backend, discardLog)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Shutdown(context.Background()) })
		return client
	}
	killed, other := open(), open()
	run := &runner{runCmd: &runCmd{Name: "kept"}, backend: backend}
	all, err := killed.LockAll(t.Context(), []string{"kept", "broken", "third"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := run.heldLeases(held{several{all, ""}, all.Hold("kept"), all.Tokens()})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := killed.Lock(t.Context(), "shared", holdfast.WithShared())
	if err != nil {
		t.Fatal(err)
	}
	ofShared, err := run.heldLeases(held{lease: shared, first: shared})
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.BreakNow(t.Context(), "broken", driver.BreakToken(all.Hold("broken").Token())); err != nil {
		t.Fatal(err)
	}
	next, err := other.TryLock(t.Context(), "broken")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a release that is repeated does no harm
		releaseLeases(t.Context(), data)
		releaseLeases(t.Context(), ofShared)
	}
	for name, want := range map[string]driver.State{"kept": driver.StateFree, "third": driver.StateFree, "broken": driver.StateHeld,
		"shared": driver.StateFree} {
		record, err := other.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if record.State != want || name == "broken" && record.Token != next.Token() {
			t.Errorf("%s is %v, want %v", name, record.State, want)
		}
	}
	releaseLeases(t.Context(), data[:len(data)-5]) // cut off: nothing happens
	if err := next.Err(); err != nil {
		t.Errorf("the next holder has lost the lock: %v", err)
	}
}
