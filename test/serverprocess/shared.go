package serverprocess

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// shared is what the shared servers of this test process have in common.
var shared struct {
	dir string // their folders are in it; empty unless Run runs the tests

	mu    sync.Mutex
	stops []func() error
}

// leakPatience is how long goroutines may take to end after the tests, such as those of an SDK that closes its connections.
const leakPatience = 30 * time.Second

// Main runs the tests, stops the shared servers, fails if goroutines are left over, and exits.
func Main(m *testing.M) {
	code := Run(m)
	if code == 0 {
		err := goleak.Find() // waits for half a second
		for end := time.Now().Add(leakPatience); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "test servers:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run runs the tests, stops the shared servers, and returns the exit code. m is a *testing.M or
// a type that wraps one.
func Run(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "holdfast-test-servers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "test servers:", err)
		return 1
	}
	shared.dir = dir
	code := m.Run()
	if err := errors.Join(stopShared(), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "test servers:", err)
		return 1
	}
	return code
}

// Shared returns a function that gives all tests of a package the same server. Its first call runs
// start with an empty folder; the others wait for that. If start failed, every test that needs the
// server fails. [Run] removes the server after the tests.
func Shared[S interface{ Remove() error }](start func(ctx context.Context, dir string) (S, error)) func(testing.TB) S {
	get := sync.OnceValues(func() (S, error) {
		var none S
		if shared.dir == "" {
			return none, errors.New("TestMain must call Main or Run of package serverprocess")
		}
		dir := filepath.Join(shared.dir, rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return none, err
		}
		server, err := start(context.Background(), dir) // the server outlives the test
		if err != nil {
			return none, err
		}
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.stops = append(shared.stops, server.Remove)
		return server, nil
	})
	return func(tb testing.TB) S {
		tb.Helper()
		server, err := get()
		if err != nil {
			tb.Fatal(err)
		}
		return server
	}
}

func stopShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, stop := range shared.stops {
		errs = append(errs, stop())
	}
	shared.stops = nil
	return errors.Join(errs...)
}
