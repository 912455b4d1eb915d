//go:build unix

package endtoend

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// process is this test binary in a worker's role.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines chan string // of its standard output; closed at its end
}

// start starts a worker; the role reads the other arguments from its environment.
func start(tb testing.TB, role, url, ttl string) worker {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role, envURL+"="+url, envTTL+"="+ttl)
	stdin, stdout := serverprocess.Piped(tb, cmd)
	p := &process{Cmd: cmd, stdin: stdin, lines: make(chan string, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		for range p.lines {    // so that the goroutine can end
		}
		<-done
		_ = cmd.Wait()
	})
	return worker{p, tb}
}

// send sends a command to a worker that reads commands.
func (w worker) send(command string) {
	w.tb.Helper()
	if _, err := io.WriteString(w.stdin, command+"\n"); err != nil {
		w.tb.Fatal(err)
	}
}

// lockURL returns a URL for locks in a collection of their own.
func lockURL(tb testing.TB, uri, collection string) string {
	tb.Helper()
	hosts, options, ok := strings.Cut(uri, "/?")
	if !ok {
		tb.Fatalf("%q is not of the form mongodb://HOSTS/?OPTIONS", uri)
	}
	return hosts + "/" + lockDatabase + "?" + options + "&collection=" + collection
}

const lockDatabase = "endtoend_locks"
