package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// maxWatchedFiles is 0: inotify needs no open file for each file of a folder.
const maxWatchedFiles = 0

// watchedEvents are those of a lock that becomes free: signalFree has set the attributes of its record,
// or the record was removed. A renewal replaces the record, which causes none of them, so a process that
// waits for many names does not run for each renewal. A person who edits a record wakes nobody.
const watchedEvents = syscall.IN_ATTRIB | syscall.IN_DELETE | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF | syscall.IN_ONLYDIR

// signalFree tells the processes that watch the folder that a lock is free, by giving the record the mode
// that it has already. If it fails, they notice the lock when they poll.
func signalFree(path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|openOnly, 0) // no link is followed
	if err != nil {
		return
	}
	_ = f.Chmod(0o600)
	_ = f.Close() // nothing was written
}

// openWatch watches a folder by inotify. openSystemWatch would do so as well, but it asks for all
// events, also for those of each renewal.
func openWatch(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := syscall.InotifyAddWatch(fd, dir, watchedEvents); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "watch", Path: dir, Err: err}, events.Close())
	}
	w := &folderWatch{ended: make(chan error, 1)}
	var reporting sync.WaitGroup
	reporting.Go(func() {
		if err := reportInotify(events, changed, missed); !errors.Is(err, os.ErrClosed) {
			w.ended <- err
		}
	})
	w.close = func() {
		_ = events.Close() // ends the read
		reporting.Wait()
	}
	return w, nil
}

// reportInotify returns when the folder is gone, after a failure, or when events is closed.
func reportInotify(events *os.File, changed changedFunc, missed func()) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := events.Read(buffer)
		if err != nil {
			return err
		}
		for rest := buffer[:n]; len(rest) >= syscall.SizeofInotifyEvent; {
			mask, length := binary.NativeEndian.Uint32(rest[4:]), int(binary.NativeEndian.Uint32(rest[12:]))
			name := rest[syscall.SizeofInotifyEvent:min(syscall.SizeofInotifyEvent+length, len(rest))]
			rest = rest[syscall.SizeofInotifyEvent+len(name):]
			switch {
			case mask&syscall.IN_Q_OVERFLOW != 0:
				missed()
			case mask&(syscall.IN_DELETE_SELF|syscall.IN_MOVE_SELF|syscall.IN_UNMOUNT|syscall.IN_IGNORED) != 0:
				return errFolderReplaced
			default:
				if name = bytes.TrimRight(name, "\x00"); bytes.HasSuffix(name, recordSuffix) {
					changed(string(name), true)
				}
			}
		}
	}
}

var recordSuffix = []byte(".json")

// explainWatch adds to an error of inotify which limit was reached; see inotify(7).
func explainWatch(err error) error {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w (the limit of open files, or of inotify instances of this user: sysctl fs.inotify.max_user_instances)", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w (the limit of inotify watches of this user: sysctl fs.inotify.max_user_watches)", err)
	}
	return err
}
