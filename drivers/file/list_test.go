package file

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A folder on a slow disk may have more records than can be read within the time limit of a call.
func TestListOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, slow = 100, 100 * time.Millisecond
		l, _ := freshLocker(t)
		for i := range records {
			mustAcquire(t, l, requestFor(fmt.Sprintf("n%03d", i)))
		}
		l.disk.open = func(ctx context.Context, path string, flag int) (*os.File, error) {
			time.Sleep(slow)
			return openFile(ctx, path, flag)
		}
		n, begin := 0, time.Now()
		for r, err := range l.List(t.Context(), "n") {
			if want := fmt.Sprintf("n%03d", n); err != nil || r.Name != want {
				t.Fatalf("%q, %v; want %s", r.Name, err, want)
			}
			n++
		}
		if n != records || time.Since(begin) <= callLimit {
			t.Errorf("%d records in %v", n, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		for r, err := range l.List(ctx, "n") {
			if err == nil {
				t.Fatalf("%q after the context has ended", r.Name)
			}
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("a context of 1 s ended it after %v", took)
		}
	})
}
