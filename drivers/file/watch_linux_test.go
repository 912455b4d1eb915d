package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
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
		"the folder is removed": syscall.IN_DELETE_SELF, "renamed": syscall.IN_MOVE_SELF, "unmounted": syscall.IN_UNMOUNT, "the watch is gone": syscall.IN_IGNORED,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(slices.Concat(event(syscall.IN_CLOSE_WRITE, "a.tmp"), event(syscall.IN_MOVED_TO, "a.json"),
			event(syscall.IN_Q_OVERFLOW, ""), event(syscall.IN_DELETE, "longer than sixteen.json"), event(last, "")))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		var got []string
		err = reportInotify(r, func(file string) { got = append(got, file) }, func() { got = append(got, "missed") })
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
