// Package env gives the scenarios of the integration suite real backends whose
// servers they may kill, freeze, cut off and restart: MongoDB replica sets and
// Azurite, in containers, in local processes, or the user's own.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { env.Main(m) }
//
// [SharedMongo] and [SharedAzurite] serve all tests of a package, each test with a
// database or container of its own; tests that disturb servers start their own
// with [StartMongo] and [StartAzurite]. A run in which no test used a backend
// fails.
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
)

// ErrUnsupported is what a fault ends with that an environment cannot cause; see
// [Check].
var ErrUnsupported = errors.New("not possible in this environment")

// Check fails the test with an error. If the environment cannot do what was asked
// for, it skips the test and says so.
func Check(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrUnsupported) {
		skip(tb, err.Error())
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// NeedContainers is for tests that use Docker themselves: in other modes it skips
// them.
func NeedContainers(tb testing.TB) {
	tb.Helper()
	if run.mode != Containers {
		skip(tb, "it needs containers")
	}
	use()
}

// run is what the tests of this process share.
var run struct {
	mode   Mode
	dir    string // for the data of processes that more than one test uses
	engine *engine

	mu      sync.Mutex
	used    int      // backends that tests asked for and got
	skipped []string // tests that asked for what cannot be had
	mongo   shared[*Mongo]
	azurite shared[*Azurite]
}

// shared is started when a test first asks for it.
type shared[T any] struct {
	once  sync.Once
	value T
	close func() error
	err   error
}

// Main chooses the mode, runs the tests, ends what they shared, and exits. It fails
// at once if there is nothing to test against, and at the end if no test used a
// backend or a goroutine is left over.
//
// Scenarios spend their time waiting, for elections and for leases to end. So four
// of them may run in parallel, however few processors there are, unless the flag
// -parallel says how many.
func Main(m *testing.M) {
	flag.Parse()
	parallel()
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

func parallel() {
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "4") // fails only for a flag that is unknown
	}
}

func runAll(m *testing.M) (code int, err error) {
	if run.mode, err = chooseMode(); err != nil {
		return 1, err
	}
	fmt.Println("integration: mode", run.mode)
	if run.mode == Containers {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if run.engine, err = connect(ctx); err != nil {
			return 1, err
		}
	}
	if run.dir, err = os.MkdirTemp("", "holdfast-integration-"); err != nil {
		return 1, err
	}
	code = m.Run()
	err = errors.Join(run.mongo.end(), run.azurite.end(), run.engine.close(), os.RemoveAll(run.dir))
	if code == 0 {
		err = errors.Join(err, verdict(), leaks())
	}
	return code, err
}

func (s *shared[T]) get(tb testing.TB, start func() (T, func() error, error)) T {
	tb.Helper()
	s.once.Do(func() { s.value, s.close, s.err = start() })
	Check(tb, s.err)
	use()
	return s.value
}

func (s *shared[T]) end() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

func use() {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.used++
}

func skip(tb testing.TB, why string) {
	tb.Helper()
	run.mu.Lock()
	run.skipped = append(run.skipped, tb.Name()+": "+why)
	run.mu.Unlock()
	tb.Skip(why)
}

// verdict is an error if the run was green because it did nothing.
func verdict() error {
	run.mu.Lock()
	defer run.mu.Unlock()
	fmt.Printf("integration: tests asked %d times for a backend and got it, %d tests were skipped\n", run.used, len(run.skipped))
	for _, name := range run.skipped {
		fmt.Println("integration: skipped", name)
	}
	if run.used == 0 {
		return errors.New("no test used a backend: nothing has been tested")
	}
	return nil
}

// leaks waits for goroutines that end and reports those that do not.
//
// Not counted are toxiproxy's that have data for a connection that is gone, as that of
// a killed client is: nobody takes it from them any more.
func leaks() error {
	return goleak.Find(goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
