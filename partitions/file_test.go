package partitions_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// In a folder some records cannot be read. The other partitions and member locks are used, the bad
// records are reported, and a record that is repaired is used, too.
func TestPartitionsOnFilesWithUnreadableRecords(t *testing.T) {
	const n, every = 6, 100 * time.Millisecond
	dir := t.TempDir()
	bad := filepath.Join(dir, "group%2fpartition-0001.json")
	long := filepath.Join(dir, "group%2fpartition-"+strings.Repeat("x", 57)+"~"+strings.Repeat("0", 64)+".json") // of an unknown name
	for _, path := range []string{bad, long, filepath.Join(dir, "group%2fpartition-member-0003.json")} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var seen locktest.Events
	begin := time.Now()
	var all []*partitions.Partitions
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 2)
	for range 2 {
		c, err := holdfast.Open(t.Context(), "file:"+dir, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		p, err := partitions.New(c, "group", n, locktest.WorkUntilCanceled, partitions.WithRebalanceEvery(every),
			holdfast.WithObserver(seen.Observe))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		go func() { done <- p.Run(ctx) }()
	}
	await := func(want ...int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			var owned []int
			for _, p := range all {
				owned = append(owned, p.Owned()...)
			}
			if slices.Sort(owned); slices.Equal(owned, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("owned: %v, want %v", owned, want)
			}
		}
	}
	await(0, 2, 3, 4, 5)
	if err := os.Remove(bad); err != nil { // repaired by hand
		t.Fatal(err)
	}
	await(0, 1, 2, 3, 4, 5)
	locktest.Eventually(t, "both instances report the records that cannot be read", func() bool { return reporters(&seen) == 2 })
	cancel()
	for range all {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	seen.Mu.Lock()
	defer seen.Mu.Unlock()
	reports := 0
	for _, e := range seen.List {
		if e.Type == holdfast.EventError && e.Op == "inspect" {
			reports++
			if text := e.Err.Error(); !strings.Contains(text, `"group/partition-member-0003"`) || !strings.Contains(text, "json") {
				t.Errorf("reported: %s", text)
			}
		}
	}
	// By each instance, once for each set of bad records, and again after 60 intervals.
	if most := 8 + 2*int(time.Since(begin)/(60*every)); reports > most {
		t.Errorf("%d reports of records that cannot be read, want at most %d", reports, most)
	}
}

// reporters counts the instances that have reported a read that failed.
func reporters(seen *locktest.Events) int {
	seen.Mu.Lock()
	defer seen.Mu.Unlock()
	owners := map[string]bool{}
	for _, e := range seen.List {
		if e.Type == holdfast.EventError && e.Op == "inspect" {
			owners[e.Owner] = true
		}
	}
	return len(owners)
}
