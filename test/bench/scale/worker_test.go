//go:build unix

package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The environment variables of a worker process.
const (
	envRole    = "HOLDFAST_SCALE_ROLE" // "followers" or "application"
	envURL     = "HOLDFAST_SCALE_URL"
	envClients = "HOLDFAST_SCALE_CLIENTS"
)

func work(role string) error {
	if role == "application" {
		return application(os.Getenv(envURL))
	}
	n, err := strconv.Atoi(os.Getenv(envClients))
	if err != nil {
		return err
	}
	return follow(os.Getenv(envURL), n)
}

// followers are the clients of one worker process.
type followers struct {
	backend *bench.Backend // of all clients
	clients []*holdfast.Client
	held    *holdfast.Hold // by the command lock
	manager *leases.LeaseManager
	out     sync.Mutex
	lines   *bufio.Writer
}

// print writes a line at once: the benchmark reads the order of grants from the lines' times, and
// ends a measurement by their number.
func (f *followers) print(args ...any) {
	f.out.Lock()
	defer f.out.Unlock()
	fmt.Fprintln(f.lines, args...)
	_ = f.lines.Flush()
}

// follow obeys the commands of standard input:
//
//	wait NAME          every client locks NAME once and holds it until the command stop
//	queue NAME AT STEP every client locks and releases NAME again and again. Client i begins i
//	                   steps after the time AT. Both are in nanoseconds.
//	lock NAME, release client 0 locks and releases
//	crowd NAME N TIMES N goroutines of client 0 lock and release NAME, so often each
//	manage N, managed  client 0 campaigns for N names, and reports how many it holds
//	stop               ends wait, queue and crowd
//	count              reports how many commands the clients have sent
//
// A line "grant PROCESS TOKEN ARRIVED GRANTED" reports each grant.
func follow(url string, n int) error {
	f := &followers{backend: bench.NewBackend(url), clients: make([]*holdfast.Client, n), lines: bufio.NewWriter(os.Stdout)}
	var opening sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		opening.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			f.clients[i], errs[i] = f.backend.Client(ctx)
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f.print("ready")
	in := bufio.NewScanner(os.Stdin)
	for {
		if stopped, err := f.obey(in); err != nil || !stopped {
			return errors.Join(err, f.shutDown())
		}
		f.print("stopped")
	}
}

func (f *followers) shutDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var ending sync.WaitGroup
	errs := make([]error, len(f.clients))
	for i, c := range f.clients {
		ending.Go(func() { errs[i] = c.Shutdown(ctx) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// obey follows commands until stop or the end of the input.
func (f *followers) obey(in *bufio.Scanner) (stopped bool, err error) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for in.Scan() {
		words := append(strings.Fields(in.Text()), "", "", "")
		name := words[1]
		switch words[0] {
		case "wait":
			for i := range f.clients {
				waiting.Go(func() { f.lockOnce(ctx, i, name) })
			}
		case "queue":
			var at, step int64
			if _, err := fmt.Sscan(words[2]+" "+words[3], &at, &step); err != nil {
				return false, err
			}
			for i := range f.clients {
				waiting.Go(func() { f.queue(ctx, i, name, time.Unix(0, at+int64(i)*step), math.MaxInt) })
			}
		case "crowd":
			var n, times int
			if _, err := fmt.Sscan(words[2]+" "+words[3], &n, &times); err != nil {
				return false, err
			}
			for range n {
				waiting.Go(func() { f.queue(ctx, 0, name, time.Now(), times) })
			}
		case "manage":
			n, err := strconv.Atoi(words[1])
			if err != nil {
				return false, err
			}
			if err := f.manage(n); err != nil {
				return false, err
			}
		case "managed":
			f.print("managed", len(f.manager.Leases()))
		case "lock":
			arrived := time.Now()
			if f.held, err = f.clients[0].Lock(ctx, name); err != nil {
				return false, err
			}
			f.grant(f.held, arrived)
		case "release":
			at := time.Now()
			if err := f.held.Release(ctx); err != nil {
				return false, err
			}
			f.print("released", at.UnixNano())
		case "count":
			f.print("sent", f.backend.Calls())
		case "stop":
			return true, nil
		}
	}
	return false, in.Err()
}

// lock waits for a lock, and reports the grant. It returns nil if there was none.
func (f *followers) lock(ctx context.Context, client int, name string) *holdfast.Hold {
	arrived := time.Now()
	h, err := f.clients[client].Lock(ctx, name)
	if err != nil {
		f.ended(ctx, client, arrived, err)
		return nil
	}
	f.grant(h, arrived)
	return h
}

func (f *followers) grant(h *holdfast.Hold, arrived time.Time) {
	f.print("grant", os.Getpid(), h.Token(), arrived.UnixNano(), time.Now().UnixNano())
}

func (f *followers) lockOnce(ctx context.Context, client int, name string) {
	h := f.lock(ctx, client, name)
	if h == nil {
		return
	}
	<-ctx.Done()
	if err := h.Release(context.WithoutCancel(ctx)); err != nil {
		f.print("error", err)
	}
}

// queue locks and releases a lock so often, or until the command stop.
func (f *followers) queue(ctx context.Context, client int, name string, begin time.Time, times int) {
	time.Sleep(time.Until(begin))
	for range times {
		h := f.lock(ctx, client, name)
		if h == nil {
			return
		}
		if err := h.Release(context.WithoutCancel(ctx)); err != nil {
			f.print("error", err)
			return
		}
	}
}

// manage campaigns for names.
func (f *followers) manage(n int) (err error) {
	if f.manager, err = leases.New(f.clients[0]); err != nil {
		return err
	}
	for i := range n {
		if err := f.manager.Add(fmt.Sprint("name-", i)); err != nil {
			return err
		}
	}
	return nil
}

// ended reports a wait that ended without a grant: by the command stop, or by an error.
func (f *followers) ended(ctx context.Context, client int, arrived time.Time, err error) {
	if ctx.Err() == nil {
		f.print("error", err)
		return
	}
	f.print("unserved", client, arrived.UnixNano())
}

// writers is how many goroutines of the application insert at the same time. So many keep a
// replica set busy on a machine with a few processors.
const writers = 32

// application inserts small documents as fast as it can, acknowledged by a majority. It obeys the
// commands "begin" and "end", and reports how many it has inserted between them.
func application(uri string) error {
	server, err := mongodriver.Connect(options.Client().ApplyURI(uri).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return err
	}
	defer server.Disconnect(context.Background()) //nolint:errcheck // the process ends
	coll := server.Database("application").Collection("orders")
	text := strings.Repeat("an order of the application ", 8)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() != "begin" {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		inserted, errs := make([]int, writers), make([]error, writers)
		began := time.Now()
		var inserting sync.WaitGroup
		for i := range writers {
			inserting.Go(func() {
				for ctx.Err() == nil && errs[i] == nil {
					_, err := coll.InsertOne(context.WithoutCancel(ctx), bson.D{{Key: "text", Value: text}})
					inserted[i]++
					errs[i] = err
				}
			})
		}
		for in.Scan() && in.Text() != "end" {
		}
		cancel()
		inserting.Wait()
		took := time.Since(began)
		if err := errors.Join(errors.Join(errs...), coll.Drop(context.Background())); err != nil {
			return err
		}
		sum := 0
		for _, n := range inserted {
			sum += n
		}
		fmt.Println("inserted", sum, took.Nanoseconds())
	}
	return nil
}

// worker is a worker process.
type worker struct {
	tb    testing.TB
	pid   int
	stdin io.WriteCloser
	lines chan []string // the words of each line of its output
	end   func()
}

func startWorker(tb testing.TB, role, url string, clients int) *worker {
	tb.Helper()
	return startWriter(tb, role, url, clients, make(chan []string, 100))
}

// startWriter starts a worker that writes its lines to a channel, which others may write to as well.
func startWriter(tb testing.TB, role, url string, clients int, lines chan []string) *worker {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role, envURL+"="+url, envClients+"="+strconv.Itoa(clients))
	stdin, stdout := serverprocess.Piped(tb, cmd)
	w := &worker{tb: tb, pid: cmd.Process.Pid, stdin: stdin, lines: lines}
	ending := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			select {
			case lines <- strings.Fields(s.Text()):
			case <-ending:
			}
		}
		select {
		case lines <- []string{"error", "a worker ended"}:
		case <-ending:
		}
	})
	w.end = sync.OnceFunc(func() {
		close(ending)
		_ = stdin.Close()
		defer time.AfterFunc(2*endTimeout, func() { _ = cmd.Process.Kill() }).Stop()
		reading.Wait()
		_ = cmd.Wait()
	})
	tb.Cleanup(w.end)
	return w
}

func (w *worker) send(words ...any) {
	w.tb.Helper()
	if _, err := fmt.Fprintln(w.stdin, words...); err != nil {
		w.tb.Fatal(err)
	}
}

// expect skips lines until one that begins with a word, and returns the numbers after it.
func (w *worker) expect(word string) []int64 {
	w.tb.Helper()
	for timeout := time.After(2 * time.Minute); ; {
		if line := nextLine(w.tb, w.lines, timeout); line[0] == word {
			return numbers(w.tb, line[1:])
		}
	}
}

// nextLine fails the benchmark if the line reports an error, or if none comes in time.
func nextLine(tb testing.TB, lines <-chan []string, timeout <-chan time.Time) []string {
	tb.Helper()
	select {
	case line := <-lines:
		if line[0] == "error" {
			tb.Fatal("a worker: ", strings.Join(line[1:], " "))
		}
		return line
	case <-timeout:
		tb.Fatal("a worker did not write a line in time")
		return nil
	}
}

func numbers(tb testing.TB, words []string) (out []int64) {
	tb.Helper()
	for _, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// endTimeout is how long a worker has to shut its clients down.
const endTimeout = 15 * time.Second
