package file

import (
	"fmt"
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
