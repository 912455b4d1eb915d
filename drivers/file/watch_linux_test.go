package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestWatchErrorsNameTheLimit(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EMFILE: "fs.inotify.max_user_instances", syscall.ENOSPC: "fs.inotify.max_user_watches", syscall.ENOENT: "no such file",
	} {
		if err := explainWatch(fmt.Errorf("watching: %w", errno)); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", errno, err, want)
		}
	}
}

// Renewals, written data and grants cause no event, so they cost a process that waits nothing. A release
// and a break cause one.
func TestOnlyAFreeLockCausesAnEvent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, _, _ := watchedLocker(t, dir)
	changes := make(chan string, 100)
	w, err := openWatch(dir, func(file string, _ bool) { changes <- file }, func() { t.Error("missed events") })
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	lease := mustAcquire(t, l, request("first"))
	quiet := func() error {
		data := driver.DataRevision{Token: lease.Token}
		return errors.Join(errOf(l.Renew(t.Context(), lease)), l.WriteData(t.Context(), lease, []byte("new"), data),
			errOf(l.Renew(t.Context(), lease)))
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"release", func() error { return l.Release(t.Context(), lease) }},
		{"break", func() error { return l.BreakNow(t.Context(), lease.Name, driver.BreakAnybody()) }},
		{"removal", func() error { return os.Remove(filepath.Join(dir, stem(lease.Name)+".json")) }},
	} {
		if err := quiet(); err != nil {
			t.Fatal(err)
		}
		if n := len(changes); n > 0 {
			t.Errorf("before the %s: %d events", step.what, n)
		}
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		// The event of anything before it would come first, and there would be one too many later.
		select {
		case file := <-changes:
			if file != stem(lease.Name)+".json" {
				t.Errorf("%s: an event of %s", step.what, file)
			}
		case <-time.After(waitLimit):
			t.Fatalf("no event: %s", step.what)
		}
		lease = mustAcquire(t, l, request(step.what))
	}
	marker := filepath.Join(dir, "marker.json")
	if err := errors.Join(quiet(), os.WriteFile(marker, nil, 0o600), os.Remove(marker)); err != nil {
		t.Fatal(err)
	}
	select {
	case file := <-changes:
		if file != filepath.Base(marker) {
			t.Errorf("one more event, of %s", file)
		}
	case <-time.After(waitLimit):
		t.Fatal("no event of the marker")
	}
}

// One read may return several events. Their names are padded with zeros.
func TestInotifyEventsAreRead(t *testing.T) {
	event := func(mask uint32, name string) []byte {
		b := binary.NativeEndian.AppendUint32(nil, 1)
		b = binary.NativeEndian.AppendUint32(b, mask)
		b = binary.NativeEndian.AppendUint32(b, 0)
		if name != "" {
			name += strings.Repeat("\x00", 16-len(name)%16)
		}
		return append(binary.NativeEndian.AppendUint32(b, uint32(len(name))), name...)
	}
	for what, last := range map[string]uint32{
		"the folder is removed": syscall.IN_DELETE_SELF, "renamed": syscall.IN_MOVE_SELF, "unmounted": syscall.IN_UNMOUNT,
		"the watch is gone": syscall.IN_IGNORED,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(slices.Concat(event(syscall.IN_ATTRIB, "a.tmp"), event(syscall.IN_ATTRIB, "a.json"),
			event(syscall.IN_Q_OVERFLOW, ""), event(syscall.IN_DELETE, "longer than sixteen.json"), event(last, "")))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		var got []string
		err = reportInotify(r, func(file string, _ bool) { got = append(got, file) }, func() { got = append(got, "missed") })
		if !errors.Is(err, errFolderReplaced) {
			t.Errorf("%s: got %v", what, err)
		}
		if want := []string{"a.json", "missed", "longer than sixteen.json"}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
		_ = r.Close()
		if err := reportInotify(r, nil, nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}
