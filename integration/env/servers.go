package env

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// server is a server of a test's own, in a container or as a process. A fault returns when it has taken effect, or with an error that
// wraps [ErrUnsupported].
type server interface {
	fmt.Stringer
	kill(ctx context.Context) error  // like a crash (SIGKILL), whether it runs, is frozen or is stopped
	stop(ctx context.Context) error  // in good order
	start(ctx context.Context) error // again, at the same address; it returns when the server accepts connections
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	cutOff(ctx context.Context) error
	rejoin(ctx context.Context) error
	setClock(ctx context.Context, offset time.Duration) error
	addr() string // where the other servers and clients reach it, host:port
	// directAddr is where this machine reaches it, also while it is cut off.
	directAddr(ctx context.Context) (string, error)
	terminate() error
}

// servers are those of a backend, numbered from 0. Their methods are safe for concurrent use, except for two faults of one server at the
// same time.
type servers struct {
	what string         // for errors
	all  []server       // none if others use them, too: they get no faults
	rest []func() error // removes what they share, and servers that get no faults
}

func (s *servers) list() *servers { return s }

// terminate removes the servers.
func (s *servers) terminate() error {
	if s == nil {
		return nil
	}
	errs := make([]error, len(s.all))
	var wg sync.WaitGroup
	for i, one := range s.all {
		wg.Go(func() { errs[i] = one.terminate() })
	}
	wg.Wait()
	err := errors.Join(errs...)
	for _, remove := range s.rest {
		err = errors.Join(err, remove())
	}
	return err
}

// own returns a backend whose servers start has started for this test alone. They are removed at its end.
func own[B interface{ list() *servers }](tb testing.TB, start func(ctx context.Context, dir string) (B, error)) B {
	tb.Helper()
	if suite.mode == Endpoints {
		skip(tb, "it injects faults into servers, which is not done to a user's own: it needs containers or processes")
	}
	backend, err := start(tb.Context(), tb.TempDir())
	Check(tb, err)
	started := backend.list()
	tb.Cleanup(func() {
		if err := started.terminate(); err != nil {
			tb.Error(err)
		}
	})
	for i, s := range started.all {
		fmt.Printf("integration: %s: %s, member %d: %s\n", tb.Name(), started.what, i, s)
	}
	countUse()
	return backend
}

// severalLimit limits how many backends of several servers run besides the shared ones. However many tests run in parallel, the servers
// must be able to hold their elections in time.
var severalLimit = make(chan struct{}, 3)

// waitForTurn waits while three other tests have backends of several servers.
func waitForTurn(tb testing.TB) {
	tb.Helper()
	severalLimit <- struct{}{}
	tb.Cleanup(func() { <-severalLimit })
}

// Kill ends a member like a crash (SIGKILL). It may be frozen, or stopped already.
func (s *servers) Kill(ctx context.Context, member int) error {
	return s.fault(ctx, "kill", member, server.kill)
}

// Restart starts a killed or stopped member at the same address, and waits until it accepts connections.
func (s *servers) Restart(ctx context.Context, member int) error {
	return s.fault(ctx, "restart", member, server.start)
}

// Pause freezes a member: connections stay open, but nothing answers.
func (s *servers) Pause(ctx context.Context, member int) error {
	return s.fault(ctx, "pause", member, server.pause)
}

// Resume ends a Pause.
func (s *servers) Resume(ctx context.Context, member int) error {
	return s.fault(ctx, "resume", member, server.resume)
}

// CutOff disconnects a member from the network of the others: neither they nor clients of the backend's URL can reach it. Clients at its
// direct address can.
func (s *servers) CutOff(ctx context.Context, member int) error {
	return s.fault(ctx, "cut off", member, server.cutOff)
}

// Rejoin ends a CutOff, also of a member that is stopped.
func (s *servers) Rejoin(ctx context.Context, member int) error {
	return s.fault(ctx, "rejoin", member, server.rejoin)
}

func (s *servers) fault(ctx context.Context, what string, member int, do func(server, context.Context) error) error {
	if s == nil || s.all == nil {
		return fmt.Errorf("%s a server that others use, too: %w", what, ErrUnsupported)
	}
	if err := do(s.all[member], ctx); err != nil {
		return fmt.Errorf("%s %s, member %d: %w", what, s.what, member, err)
	}
	return nil
}

// directAddress is where this machine reaches a member, also while that is cut off from the others.
func (s *servers) directAddress(ctx context.Context, member int) (at string, err error) {
	err = s.fault(ctx, "find", member, func(one server, ctx context.Context) error {
		at, err = one.directAddr(ctx)
		return err
	})
	return at, err
}

// addresses returns the addresses of the members, in order.
func (s *servers) addresses() []string {
	var all []string
	for _, one := range s.all {
		all = append(all, one.addr())
	}
	return all
}

// errNoClock is the error of a server that was started without FakeClock.
var errNoClock = errors.New("it was started without FakeClock")

// process is a server as a process of this machine, on loopback.
type process struct {
	localServer
	clock *serverprocess.Clock // nil if it cannot be moved
}

// localServer is a [serverprocess.Server], or one that has its own way to some of this.
type localServer interface {
	Addr() string
	Kill() error
	Stop() error
	Restart(ctx context.Context) error
	Pause() error
	Resume() error
	Remove() error
}

// processes are servers as processes.
func processes[S localServer](what string, started ...S) *servers {
	s := &servers{what: what}
	for _, one := range started {
		s.all = append(s.all, process{localServer: one})
	}
	return s
}

func (p process) String() string                             { return "a process at " + p.Addr() }
func (p process) addr() string                               { return p.Addr() }
func (p process) directAddr(context.Context) (string, error) { return p.Addr(), nil }
func (p process) kill(context.Context) error                 { return p.Kill() }
func (p process) stop(context.Context) error                 { return p.Stop() }
func (p process) start(ctx context.Context) error            { return p.Restart(ctx) }
func (p process) pause(context.Context) error                { return p.Pause() }
func (p process) resume(context.Context) error               { return p.Resume() }
func (p process) terminate() error                           { return p.Remove() }

func (p process) cutOff(context.Context) error {
	return fmt.Errorf("%w: processes on loopback cannot be cut off from each other; containers can", ErrUnsupported)
}

func (p process) rejoin(ctx context.Context) error { return p.cutOff(ctx) }

func (p process) setClock(_ context.Context, offset time.Duration) error {
	if p.clock == nil {
		return errNoClock
	}
	return p.clock.Set(offset)
}
