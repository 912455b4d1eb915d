package file

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func init() { tasks["full"] = fullTask }

// fullTask acquires locks while a file may have only a few bytes, as on a full disk.
func fullTask(dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // so that write returns EFBIG
	limit := syscall.Rlimit{Cur: 20, Max: 20}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	l, err := New(dir)
	if err != nil {
		return err
	}
	defer l.Close(context.Background())
	ctx := context.Background()
	_, err = l.TryAcquire(ctx, driver.Request{Name: "new", ID: driver.NewLeaseID("second"), TTL: 60e9})
	fmt.Println("new:", err)
	fmt.Println("old:", errOf(l.Renew(ctx, driver.Lease{Name: "n", ID: driver.NewLeaseID("first"), TTL: 60e9})))
	return nil
}

// A full disk is an error that names the file. The old record stays whole.
func TestDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	l := mustNew(t, dir)
	lease := mustAcquire(t, l, request("first"))
	out, err := child(t, "full", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const large = ": file too large; raise this process's limit of file sizes (ulimit -f)"
	for _, want := range []string{
		"new: holdfast: acquire \"new\" on file: writing the record: write " + filepath.Join(dir, "new.tmp") + large,
		"old: holdfast: renew \"n\" on file: writing the record: write " + filepath.Join(dir, "n.tmp") + large,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the child said:\n%s\nwant %s", out, want)
		}
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Token != lease.Token || r.State != driver.StateHeld {
		t.Errorf("after it: %+v, error %v; want held as before", r, err)
	}
	if r, err := l.Inspect(t.Context(), "new"); err != nil || r.State != driver.StateFree || r.Token != 0 {
		t.Errorf("after it: %+v, error %v; want no record", r, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*.tmp")); len(left) > 0 { // .pruned.tmp may be under way
		t.Errorf("temporary files are left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.json")); err == nil {
		t.Error("a record of a lock that was not granted")
	}
}
