// Package azuritetest gives tests a real blob service: it installs Azurite,
// Microsoft's emulator, starts it on loopback, and stops it at the end, so that
// plain "go test" works on a new machine that has Node.js.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { azuritetest.Main(m) }
//
// The service of [Shared] is started when a test first asks for it and serves
// all tests of the package, each in a container of its own. Tests that stop or
// freeze the service start one with [Start].
//
// Nothing is ever skipped: where no service can be had the test fails and says
// what to do.
package azuritetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// EnvURL names the variable that points tests to a service that runs already:
// azblob://emulator/any?endpoint=http://127.0.0.1:10000/devstoreaccount1, or
// azblob://ACCOUNT/any together with AZURE_STORAGE_KEY. The tests make and
// delete containers of their own in it.
const EnvURL = testservers.EnvAzblobURL

// Main runs the tests, stops the service, fails the run if goroutines are left
// over, and exits.
//
// Tests with Azure's leases spend their time waiting, since none is shorter
// than 15 s. So more of them may run in parallel than there are processors,
// unless the flag -parallel says how many.
func Main(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "64") // fails only for a flag that is unknown
	}
	code := Run(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "azuritetest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Run runs the tests, stops the service, and returns the exit code. m is a *testing.M,
// or runs one in turn.
func Run(m interface{ Run() int }) int {
	dir, err := os.MkdirTemp("", "holdfast-azuritetest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "azuritetest:", err)
		return 1
	}
	common.dir = dir
	code := m.Run()
	if err := errors.Join(common.stop(), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "azuritetest:", err)
		return 1
	}
	return code
}

// common is what the tests of this process share.
var common shared

type shared struct {
	dir string // empty unless Run is at work

	mu      sync.Mutex // held while the service starts: who comes second waits for it
	started bool
	service *Service
	process *process
	err     error
}

// Shared is the service that the tests of a package share.
func Shared(tb testing.TB) *Service {
	tb.Helper()
	common.mu.Lock()
	defer common.mu.Unlock()
	if !common.started {
		common.started = true
		common.service, common.err = common.start()
	}
	if common.err != nil {
		tb.Fatalf("azuritetest: %v", common.err)
	}
	return common.service
}

func (sh *shared) start() (*Service, error) {
	if url := os.Getenv(EnvURL); url != "" {
		return parse(url)
	}
	if sh.dir == "" {
		return nil, errors.New("TestMain must call azuritetest.Main")
	}
	ctx := context.Background() // it outlives the test that asks first
	path, err := testservers.Azurite(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newProcess(ctx, path, sh.dir, false)
	if err != nil {
		return nil, err
	}
	sh.process = p
	return p.service(), p.start(ctx)
}

func (sh *shared) stop() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.process == nil {
		return nil
	}
	return sh.process.remove()
}

// Server is an Azurite of one test, which may stop and freeze it. Its methods
// are safe for concurrent use.
type Server struct {
	*Service
	mu sync.Mutex // held while the process starts and stops
	p  *process
}

// Start starts an Azurite for this test alone and removes it at the end. With
// persist it keeps what it stores over restarts, otherwise it forgets it.
func Start(tb testing.TB, persist bool) *Server {
	tb.Helper()
	s, err := New(tb.Context(), tb.TempDir(), persist)
	if err != nil {
		tb.Fatalf("azuritetest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Remove(); err != nil {
			tb.Errorf("azuritetest: %v", err)
		}
	})
	return s
}

// New is like [Start], with its data in dir. The caller removes it.
func New(ctx context.Context, dir string, persist bool) (*Server, error) {
	path, err := testservers.Azurite(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newProcess(ctx, path, dir, persist)
	if err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	return &Server{Service: p.service(), p: p}, nil
}

// Remove ends the server and gives its port back.
func (s *Server) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.remove()
}

// Kill ends the server at once (SIGKILL): of what it keeps on disk, the last
// seconds may be lost.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.kill()
}

// Stop ends the server in good order.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.stop()
}

// Restart ends the server and starts it again at the same address.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.p.stop(); err != nil {
		return err
	}
	return s.p.start(ctx)
}

// Pause freezes the server: its connections stay open and nothing answers.
func (s *Server) Pause() error { return s.signal(pause) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signal(resume) }

func (s *Server) signal(send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p.cmd == nil {
		return errors.New("the server does not run")
	}
	return send(s.p.cmd.Process)
}
