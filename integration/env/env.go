// Package env gives the scenarios of the integration suite real backends, whose servers they may
// kill, freeze, cut off and restart: MongoDB replica sets, PostgreSQL with standbys, and Azurite, in
// containers, in local processes, or the user's own.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { env.Main(m) }
//
// All tests of a package share [SharedMongo], [SharedPostgres] and [SharedAzurite], each with a
// database or container of its own. Tests that inject faults into servers start their own with
// [StartMongo], [StartPostgres] and [StartAzurite]. A run in which no test used a backend fails.
package env

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// ErrUnsupported is the error of a fault that the environment cannot inject; see [Check].
var ErrUnsupported = errors.New("not possible in this environment")

// Check fails the test if err is an error. It skips the test if the environment does not support
// what the test needs.
func Check(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrUnsupported) {
		skip(tb, err.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// RequireContainers skips the test in modes without containers. It is for tests that use Docker
// directly.
func RequireContainers(tb testing.TB) {
	tb.Helper()
	if suite.mode != Containers {
		skip(tb, "it needs containers")
	}
	countUse()
}

// suite is the state that the tests of this process share.
var suite struct {
	mode   Mode
	dir    string // for the data of shared server processes
	engine *engine

	mu      sync.Mutex
	used    int      // how often a test got a backend
	skipped []string // tests that needed what the mode does not support
	mongo   shared[*Mongo]
	azurite shared[*Azurite]

	postgres shared[*Postgres]
}

// shared is a backend that is started when the first test asks for it.
type shared[T interface{ list() *servers }] struct {
	once  sync.Once
	value T
	err   error
	close func() error // nil unless it has been started
}

// Main chooses the mode, runs the tests, stops shared backends, and exits. It fails at once if no
// backend is available, and at the end if no test used a backend or a goroutine is left.
//
// Scenarios spend most of their time waiting, for elections and for leases to end. So four of
// them may run in parallel, however few processors there are, unless the flag -parallel sets a
// number.
func Main(m *testing.M) {
	serverprocess.Parallel(4)
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		os.Exit(m.Run())
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if suite.mode, err = chooseMode(); err != nil {
		return 1, err
	}
	fmt.Println("integration: mode", suite.mode)
	if suite.mode == Containers {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if suite.engine, err = connect(ctx); err != nil {
			return 1, err
		}
	}
	if suite.dir, err = os.MkdirTemp("", "holdfast-integration-"); err != nil {
		return 1, err
	}
	code = m.Run()
	err = errors.Join(suite.mongo.stop(), suite.azurite.stop(), suite.postgres.stop(), suite.engine.close(), os.RemoveAll(suite.dir))
	if code == 0 {
		err = errors.Join(err, checkUsed(), leaks())
	}
	return code, err
}

func (s *shared[T]) get(tb testing.TB, start func() (T, error)) T {
	tb.Helper()
	s.once.Do(func() {
		s.err = errors.New("it could not be started for another test") // if start ends that test
		if s.value, s.err = start(); s.err == nil {
			s.close = s.value.list().terminate
		}
	})
	Check(tb, s.err)
	countUse()
	return s.value
}

func (s *shared[T]) stop() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

func countUse() {
	suite.mu.Lock()
	defer suite.mu.Unlock()
	suite.used++
}

func skip(tb testing.TB, why string) {
	tb.Helper()
	suite.mu.Lock()
	suite.skipped = append(suite.skipped, tb.Name()+": "+why)
	suite.mu.Unlock()
	tb.Skip(why)
}

// checkUsed returns an error if the tests passed without using a backend.
func checkUsed() error {
	suite.mu.Lock()
	defer suite.mu.Unlock()
	fmt.Printf("integration: tests used a backend %d times, %d tests were skipped\n", suite.used, len(suite.skipped))
	for _, name := range suite.skipped {
		fmt.Println("integration: skipped", name)
	}
	if suite.used == 0 {
		return errors.New("no test used a backend: nothing has been tested")
	}
	return nil
}

// leaks waits for goroutines to end and reports those that do not.
//
// It ignores goroutines of toxiproxy that hold data for a closed connection, such as a killed
// client's: they never end.
func leaks() error {
	return goleak.Find(goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
