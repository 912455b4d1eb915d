package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/test/locktest"
)

// Commands that follow locks make no folder, and say that there is none. Those that may break locks make
// it.
func TestFollowingMakesNothing(t *testing.T) {
	for _, c := range []struct {
		args  []string
		makes bool
	}{
		{[]string{"watch"}, false},
		{[]string{"watch", "job"}, false},
		{[]string{"elect", "-l", "job"}, false},
		{[]string{"serve", "--listen", "127.0.0.1:0"}, false},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--allow-break"}, true},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "locks")
			messages := filepath.Join(t.TempDir(), "messages")
			out, err := os.Create(messages)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			cmd := exec.Command("holdfast", c.args...)
			cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND=file:"+dir, "GORACE="+gorace)
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			want := "there are no locks here yet: the folder " + dir + " does not exist"
			if c.makes {
				want = "the locks on file:" + dir + " are at"
			}
			locktest.Eventually(t, want, func() bool {
				text, err := os.ReadFile(messages)
				if err != nil {
					t.Fatal(err)
				}
				return strings.Contains(string(text), want)
			})
			if _, err := os.Stat(dir); os.IsNotExist(err) == c.makes {
				t.Errorf("the folder: %v", err)
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// The table says it in place of the locks.
func TestTopMakesNothing(t *testing.T) {
	l := newLocks(t)
	missing := &locks{t, l.url + "/none"}
	s := missing.top(200, 24, nil)
	s.shows("There are no locks here yet: the folder ")
	if _, err := os.Stat(strings.TrimPrefix(missing.url, "file:")); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}
