package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/driver"
)

// A request that ends before the record is written has changed nothing. Once it is written, or the disk hangs, nobody knows.
func TestNotSent(t *testing.T) {
	l, dir := freshLocker(t)
	try := func(what string, want bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		req := request(what)
		req.Name = what
		_, err := l.TryAcquire(ctx, req)
		if err == nil || driver.NotSent(err) != want || driver.OutcomeKnown(err) {
			t.Errorf("%s: not sent: %v: %v", what, driver.NotSent(err), err)
		}
	}
	locked := flock.New(filepath.Join(dir, stem("locked")+".lock"))
	if ok, err := locked.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	try("locked", true)
	if err := locked.Close(); err != nil {
		t.Fatal(err)
	}
	l.disk.syncDir = func(string) error { return errors.New("the disk fails") }
	try("written", false)
	answers := make(chan struct{})
	l.disk.sync = func(*os.File) error { <-answers; return nil }
	try("hangs", false)
	close(answers)
}
