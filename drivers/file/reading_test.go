package file

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Reading makes no folder, and needs no right to write, nor a folder of the user's own.
func TestReadingNeedsNoRightToWrite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "locks")
	l, err := driver.OpenForReading(t.Context(), "file:"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	missing := func() string {
		t.Helper()
		what, err := driver.MissingStore(t.Context(), l)
		if err != nil {
			t.Error(err)
		}
		return what
	}
	read := func() (held, listed int) {
		t.Helper()
		r, err := l.Inspect(t.Context(), "n")
		if err != nil {
			t.Error(err)
		}
		if r.State == driver.StateHeld {
			held++
		}
		batch, errs := l.Capabilities().BatchInspector.InspectBatch(t.Context(), "", []string{"n"})
		if errs[0] != nil || batch[0].State != r.State {
			t.Errorf("the batch reads %v, error %v", batch[0], errs[0])
		}
		for _, err := range l.Capabilities().Lister.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			listed++
		}
		return held, listed
	}
	if held, listed := read(); held != 0 || listed != 0 || missing() != "the folder "+dir {
		t.Errorf("without a folder %d locks are held and %d listed; missing: %q", held, listed, missing())
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("reading has made the folder: %v", err)
	}

	holder := mustNew(t, dir)
	mustAcquire(t, holder, request("first"))
	if err := holder.Close(t.Context()); err != nil { // it also waits for the removal of old records
		t.Fatal(err)
	}
	giveAway(t, dir)
	before := must(os.ReadDir(dir))
	if held, listed := read(); held != 1 || listed != 1 || missing() != "" {
		t.Errorf("%d locks are held and %d listed; missing: %q", held, listed, missing())
	}
	if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
		t.Errorf("reading has left %v in the folder, error %v", after, err)
	}
}

// A folder that was there and is gone does not look like one without locks.
func TestReadingNoticesThatTheFolderIsGone(t *testing.T) {
	t.Parallel()
	for _, look := range []func(l driver.Locker) error{
		func(l driver.Locker) error { _, err := l.Inspect(t.Context(), "n"); return err },
		func(l driver.Locker) error {
			for _, err := range l.Capabilities().Lister.List(t.Context(), "") {
				return err
			}
			return nil
		},
	} {
		dir := filepath.Join(t.TempDir(), "locks")
		l, err := driver.OpenForReading(t.Context(), "file:"+filepath.ToSlash(dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close(t.Context()) })
		if err := look(l); err != nil {
			t.Error(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := look(l); err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := look(l); err == nil {
			t.Error("the folder is gone, and its locks look free")
		}
	}
}

// giveAway makes a folder one that this user may only read: that of another user if this is root, to
// whom modes mean nothing.
func giveAway(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		const nobody = 65534
		for _, entry := range entries {
			if err := os.Chown(filepath.Join(dir, entry.Name()), nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
}
