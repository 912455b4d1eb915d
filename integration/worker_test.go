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

// envJob is the variable in which a process finds its job.
const envJob = "HOLDFAST_SCENARIO_JOB"

// job is what a process of its own does: this test binary, run again.
type job struct {
	Role string // a key of roles
	URL  string // of the locks
	Name string // of the lock
	TTL  time.Duration
	Poll time.Duration
	Many int    // how many waiters
	Dir  string // for what the role writes
	Grid string // the URI of the server that the role's own writes go to
}

// roles talk to the test by lines. They are the values of a variable so that init
// finds all of them.
var roles = map[string]func(job, *holdfast.Client, *bufio.Scanner) error{
	"obey": obey, "crowd": crowd, "fenced": workFenced,
}

// A process that has a job does it and ends before any test of it can begin.
func init() {
	text, ok := os.LookupEnv(envJob)
	if !ok {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // so that a write beyond a limit is an error
	if err := work(text); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := j.Poll
	if poll == 0 {
		poll = time.Second
	}
	client, err := holdfast.Open(ctx, j.URL, holdfast.WithTTL(j.TTL), holdfast.WithGrace(j.TTL/3), holdfast.WithPollInterval(poll),
		holdfast.WithLogger(slog.New(slog.DiscardHandler)), holdfast.WithObserver(func(e holdfast.Event) { fmt.Println("event", e) }))
	if err != nil {
		return err
	}
	if err := roles[j.Role](j, client, bufio.NewScanner(os.Stdin)); err != nil {
		return err
	}
	return client.Shutdown(ctx)
}

// obey does what it is told, a line each: lock, release, err (how the hold is), left (how
// long it lasts), time (the wall clock).
func obey(j job, client *holdfast.Client, orders *bufio.Scanner) error {
	var hold *holdfast.Hold
	for orders.Scan() {
		switch orders.Text() {
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
	return orders.Err()
}

// worker is a process with a job, seen from the test.
type worker struct {
	*exec.Cmd
	tb    testing.TB
	stdin io.WriteCloser
	lines chan string // of its standard output; closed at its end

	mu   sync.Mutex
	said []string
}

// prepare makes a process that is yet to be started, by start.
func prepare(tb testing.TB, j job) *worker {
	tb.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		tb.Fatal(err)
	}
	w := &worker{Cmd: exec.Command(os.Args[0]), tb: tb, lines: make(chan string, 100_000)}
	w.Env = append(os.Environ(), envJob+"="+string(text))
	w.Stderr = os.Stderr
	if w.stdin, err = w.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	return w
}

// start starts the process in whichever way; it is killed at the end of the test if it
// runs then.
func (w *worker) start(start func(*exec.Cmd) error) {
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
			w.said = append(w.said, s.Text())
			w.mu.Unlock()
			if !strings.HasPrefix(s.Text(), "event ") {
				w.lines <- s.Text()
			}
		}
	}()
	w.tb.Cleanup(func() {
		_ = w.Process.Kill() // most have ended
		<-done
		_ = w.Wait()
		if w.tb.Failed() {
			for _, line := range w.output() {
				w.tb.Logf("process %d: %s", w.Process.Pid, line)
			}
		}
	})
}

// newWorker starts a process with a job.
func newWorker(tb testing.TB, j job) *worker {
	tb.Helper()
	w := prepare(tb, j)
	w.start((*exec.Cmd).Start)
	return w
}

func (w *worker) output() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.said...)
}

// tells reports whether the process was told an event of the kind.
func (w *worker) tells(kind holdfast.EventType) bool {
	for _, line := range w.output() {
		if strings.HasPrefix(line, "event "+kind.String()+" ") {
			return true
		}
	}
	return false
}

// order gives an order to a process.
func (w *worker) order(line string) {
	w.tb.Helper()
	if _, err := io.WriteString(w.stdin, line+"\n"); err != nil {
		w.tb.Fatal(err)
	}
}

// ask gives an order and returns what follows the order's answer.
func (w *worker) ask(line, word string) string {
	w.tb.Helper()
	w.order(line)
	return w.expect(word)
}

// expect returns what follows the first word of the next line that begins with it.
func (w *worker) expect(word string) string {
	w.tb.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-w.lines:
			first, rest, _ := strings.Cut(line, " ")
			switch {
			case !ok || first == "error":
				w.tb.Fatalf("a process that was to say %q ended: %s", word, line)
			case first == word:
				return rest
			}
		case <-timeout:
			w.tb.Fatalf("a process did not say %q within %v", word, patience)
		}
	}
}

func (w *worker) expectInt(word string) int64 {
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
