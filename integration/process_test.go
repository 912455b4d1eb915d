//go:build unix

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/file"
)

// jobVariable is the environment variable that holds a worker process's job, as JSON.
const jobVariable = "HOLDFAST_SCENARIO_JOB"

// job is the work of a process of its own. The process runs this test binary.
type job struct {
	Role    string // a key of roles
	URL     string // of the locks
	Name    string // of the lock
	TTL     time.Duration
	Waiters int    // how many goroutines wait for the lock; for the role "waiters"
	Dir     string // where the role writes its files
}

// roles communicate with the test by lines of text. The map is a variable so that it is
// initialized before init runs.
var roles = map[string]func(job, *holdfast.Client, *bufio.Scanner) error{
	"commands": followCommands, "waiters": runWaiters, "fenced": runFenced,
}

// A worker process runs its job here and exits before any test starts.
func init() {
	text, ok := os.LookupEnv(jobVariable)
	if !ok {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // a write beyond the file size limit returns an error instead
	if err := runJob(text); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runJob(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	client, err := holdfast.Open(ctx, j.URL, holdfast.WithTTL(j.TTL), holdfast.WithGrace(j.TTL/3), holdfast.WithPollInterval(time.Second),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(func(e holdfast.Event) { fmt.Println("event", e) }))
	if err != nil {
		return err
	}
	if err := roles[j.Role](j, client, bufio.NewScanner(os.Stdin)); err != nil {
		return err
	}
	return client.Shutdown(ctx)
}

// followCommands runs one command a line: lock, release, err (prints Hold.Err), left (prints the
// time until the local deadline), time (prints the wall clock).
func followCommands(j job, client *holdfast.Client, commands *bufio.Scanner) error {
	var hold *holdfast.Hold
	for commands.Scan() {
		switch commands.Text() {
		case "lock":
			var err error
			if hold, err = client.Lock(context.Background(), j.Name); err != nil {
				return err
			}
			fmt.Println("token", hold.Token())
		case "release":
			fmt.Println("released", hold.Release(context.Background()))
		case "err":
			fmt.Println("err", hold.Err())
		case "left":
			fmt.Println("left", int64(hold.LostIn()))
		case "time":
			fmt.Println("time", time.Now().Round(0).UnixNano())
		}
	}
	return commands.Err()
}

// workerProcess is a process with a job, as the test sees it.
type workerProcess struct {
	*exec.Cmd
	tb    testing.TB
	stdin io.WriteCloser
	lines chan string // of its standard output, without events; closed when the process ends

	mu      sync.Mutex
	printed []string
}

// newWorker makes a process that start will start.
func newWorker(tb testing.TB, j job) *workerProcess {
	tb.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		tb.Fatal(err)
	}
	w := &workerProcess{Cmd: exec.Command(os.Args[0]), tb: tb, lines: make(chan string, 100_000)}
	w.Env = append(os.Environ(), jobVariable+"="+string(text))
	w.Stderr = os.Stderr
	if w.stdin, err = w.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	return w
}

// start starts the process by the given function. It is killed at the end of the test if it still
// runs.
func (w *workerProcess) start(start func(*exec.Cmd) error) {
	w.tb.Helper()
	stdout, err := w.StdoutPipe()
	if err != nil {
		w.tb.Fatal(err)
	}
	if err := start(w.Cmd); err != nil {
		w.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			w.mu.Lock()
			w.printed = append(w.printed, s.Text())
			w.mu.Unlock()
			if !strings.HasPrefix(s.Text(), "event ") {
				w.lines <- s.Text()
			}
		}
	}()
	w.tb.Cleanup(func() {
		_ = w.Process.Kill() // most have ended already
		<-done
		_ = w.Wait()
		if w.tb.Failed() {
			for _, line := range w.output() {
				w.tb.Logf("process %d: %s", w.Process.Pid, line)
			}
		}
	})
}

// startWorker starts a process with a job.
func startWorker(tb testing.TB, j job) *workerProcess {
	tb.Helper()
	w := newWorker(tb, j)
	w.start((*exec.Cmd).Start)
	return w
}

func (w *workerProcess) output() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.printed...)
}

// reported reports whether the process's observer received an event of the kind.
func (w *workerProcess) reported(kind holdfast.EventType) bool {
	for _, line := range w.output() {
		if strings.HasPrefix(line, "event "+kind.String()+" ") {
			return true
		}
	}
	return false
}

// send sends a command to the process.
func (w *workerProcess) send(line string) {
	w.tb.Helper()
	if _, err := io.WriteString(w.stdin, line+"\n"); err != nil {
		w.tb.Fatal(err)
	}
}

// query sends a command and returns the rest of the line that answers it.
func (w *workerProcess) query(line, word string) string {
	w.tb.Helper()
	w.send(line)
	return w.expect(word)
}

// expect waits for a line that begins with the word and returns the rest of it.
func (w *workerProcess) expect(word string) string {
	w.tb.Helper()
	timeout := time.After(waitLimit)
	for {
		select {
		case line, ok := <-w.lines:
			first, rest, _ := strings.Cut(line, " ")
			switch {
			case !ok || first == "error":
				w.tb.Fatalf("the process ended before it printed %q: %s", word, line)
			case first == word:
				return rest
			}
		case <-timeout:
			w.tb.Fatalf("the process did not print %q within %v", word, waitLimit)
		}
	}
}

func (w *workerProcess) expectInt(word string) int64 {
	w.tb.Helper()
	return parse(w.tb, w.expect(word))
}

func parse(tb testing.TB, text string) int64 {
	tb.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
