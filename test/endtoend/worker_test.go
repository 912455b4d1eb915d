//go:build unix

package endtoend

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The environment variables of a worker process.
const (
	envRole = "HOLDFAST_WORKER_ROLE"
	envURL  = "HOLDFAST_WORKER_URL" // of the locks
	envURI  = "HOLDFAST_WORKER_URI" // of the server, for writes with a guard
	envDir  = "HOLDFAST_WORKER_DIR"
	envTTL  = "HOLDFAST_WORKER_TTL"
)

const lockName = "the-job"

// TestMain runs the tests, or, in a worker process, its role.
func TestMain(m *testing.M) {
	roles := map[string]func(context.Context, *holdfast.Client, *bench.Backend) error{
		"count": count, "guard": guardedWrites, "relay": relay, "waiters": waiters, "manage": manage,
	}
	role := roles[os.Getenv(envRole)]
	if role == nil {
		flag.Parse()
		_ = flag.Set("test.parallel", "16") // the tests mostly wait
		os.Exit(serverprocess.Run(m))
	}
	if err := work(role); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func work(role func(context.Context, *holdfast.Client, *bench.Backend) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ttl, err := time.ParseDuration(os.Getenv(envTTL))
	if err != nil {
		return err
	}
	backend := bench.NewBackend(os.Getenv(envURL))
	client, err := backend.Client(ctx, holdfast.WithTTL(ttl))
	if err != nil {
		return err
	}
	err = role(ctx, client, backend)
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(err, client.Shutdown(closing))
}

// count adds to a number in a file under the lock, until ctx ends, and writes how much it added.
// Only the lock protects the read and the write of the file.
func count(ctx context.Context, client *holdfast.Client, _ *bench.Backend) error {
	added, grants := 0, 0
	for ctx.Err() == nil {
		err := client.Do(ctx, lockName, func(ctx context.Context) error {
			grants++
			token, _ := holdfast.TokenFromContext(ctx)
			if err := logLine("enter %d %d", token, os.Getpid()); err != nil {
				return err
			}
			for range 20 {
				if ctx.Err() != nil {
					break
				}
				if err := addOne(); err != nil {
					return err
				}
				added++
			}
			return logLine("leave %d %d", token, os.Getpid())
		})
		if err != nil && !errors.Is(err, holdfast.ErrLost) && ctx.Err() == nil {
			return err
		}
	}
	fmt.Println("added", added, grants)
	return nil
}

func addOne() error {
	path := os.Getenv(envDir) + "/counter"
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n, _ := strconv.Atoi(string(b)) // 0 if there is no file yet
	time.Sleep(200 * time.Microsecond)
	return os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600)
}

// logLine appends to the log of all workers. The operating system keeps short appends whole and in
// order.
func logLine(format string, args ...any) error {
	f, err := os.OpenFile(os.Getenv(envDir)+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// guardedWrites writes to a document with a guard, repeatedly and as fast as it can, until a write
// is refused. It reports the first write and the refused one.
func guardedWrites(ctx context.Context, client *holdfast.Client, _ *bench.Backend) error {
	server, err := mongodriver.Connect(options.Client().ApplyURI(os.Getenv(envURI)))
	if err != nil {
		return err
	}
	defer server.Disconnect(context.Background()) //nolint:errcheck // the process ends
	db := server.Database("guarded")
	guard, err := mongo.NewGuard(client.Locker(), db)
	if err != nil {
		return err
	}
	hold, err := client.Lock(ctx, lockName)
	if err != nil {
		return err
	}
	fmt.Println("token", hold.Token())
	for n := 0; ; n++ {
		err := guard.Do(ctx, unawareHold{hold}, func(ctx context.Context) error {
			_, err := db.Collection("balances").UpdateOne(ctx, bson.D{{Key: "_id", Value: "b"}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "by", Value: int64(hold.Token())}}}}, options.UpdateOne().SetUpsert(true))
			return err
		})
		switch {
		case err == nil && n == 0:
			fmt.Println("written")
		case err != nil:
			fmt.Println("refused", errors.Is(err, holdfast.ErrLost), err)
			return nil
		}
	}
}

// unawareHold is a hold that does not show its end, like that of a process which is paused between
// its last check and its write.
type unawareHold struct{ *holdfast.Hold }

func (unawareHold) Context() context.Context { return context.Background() }
func (unawareHold) Err() error               { return nil }

// relay acquires and releases the lock on command and writes when, by the clock that all processes
// share.
func relay(ctx context.Context, client *holdfast.Client, _ *bench.Backend) error {
	commands := bufio.NewScanner(os.Stdin)
	var hold *holdfast.Hold
	for commands.Scan() {
		switch commands.Text() {
		case "lock":
			var err error
			if hold, err = client.Lock(ctx, lockName); err != nil {
				return err
			}
			fmt.Println("locked", time.Now().UnixNano())
		case "release":
			at := time.Now().UnixNano()
			if err := hold.Release(ctx); err != nil {
				return err
			}
			fmt.Println("released", at)
		}
	}
	return nil
}

// worker is a worker process of a test.
type worker struct {
	*process
	tb testing.TB
}

// expect waits for a line of output that begins with a word and returns the fields after it.
func (w worker) expect(word string) []string {
	w.tb.Helper()
	return w.expectWithin(time.Minute, word)
}

func (w worker) expectWithin(limit time.Duration, word string) []string {
	w.tb.Helper()
	timeout := time.After(limit)
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				w.tb.Fatalf("a worker ended before it wrote %q", word)
			}
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == word {
				return fields[1:]
			}
			if strings.HasPrefix(line, "error") {
				w.tb.Fatalf("a worker: %s", line)
			}
		case <-timeout:
			w.tb.Fatalf("a worker did not write %q within %v", word, limit)
		}
	}
}

func (w worker) expectInt(word string) int64 {
	w.tb.Helper()
	n, err := strconv.ParseInt(w.expect(word)[0], 10, 64)
	if err != nil {
		w.tb.Fatal(err)
	}
	return n
}
