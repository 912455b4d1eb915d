package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tcazurite "github.com/testcontainers/testcontainers-go/modules/azure/azurite"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

// Azurite is a blob service. Faults return when they have come into effect, or an
// error that is [ErrUnsupported]; [Check] takes both.
type Azurite struct {
	// Service tells its address and makes clients.
	*azuritetest.Service
	faults azuriteFaults // nil for the user's own
}

// azuriteFaults is a service that can be disturbed.
type azuriteFaults interface {
	kill(ctx context.Context) error
	stop(ctx context.Context) error
	start(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	terminate() error
}

// StartAzurite starts a service for this test alone and removes it at the end. With
// keepState it keeps over restarts what it has on disk, otherwise it forgets
// everything.
func StartAzurite(tb testing.TB, keepState bool) *Azurite {
	tb.Helper()
	if run.mode == Endpoints {
		skip(tb, "it disturbs servers, which is not done to a user's own: containers or processes are needed")
	}
	a, err := newAzurite(tb.Context(), tb.TempDir(), tb.Name(), keepState)
	Check(tb, err)
	tb.Cleanup(func() {
		if err := a.faults.terminate(); err != nil {
			tb.Error(err)
		}
	})
	use()
	return a
}

// SharedAzurite is a service that all tests of the package share. They disturb it
// only through proxies of their own.
func SharedAzurite(tb testing.TB) *Azurite {
	tb.Helper()
	return run.azurite.get(tb, func() (*Azurite, func() error, error) {
		if run.mode == Endpoints {
			if os.Getenv(azuritetest.EnvURL) == "" {
				return nil, nil, fmt.Errorf("%w: %s is not set", ErrUnsupported, azuritetest.EnvURL)
			}
			service, err := azuritetest.FromEnvironment()
			return &Azurite{Service: service}, nil, err
		}
		dir := filepath.Join(run.dir, "azurite")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, nil, err
		}
		a, err := newAzurite(context.Background(), dir, "shared", false)
		if err != nil {
			return nil, nil, err
		}
		return a, a.faults.terminate, nil
	})
}

// FreshURL is what holdfast.Open takes for a container of this test's own, which is
// removed at its end.
func (a *Azurite) FreshURL(tb testing.TB) string {
	tb.Helper()
	return a.URL(a.Fresh(tb))
}

// Kill ends the service as a crash does (SIGKILL): of what it keeps on disk, the
// last seconds may be lost.
func (a *Azurite) Kill(ctx context.Context) error {
	return a.fault(ctx, "kill", azuriteFaults.kill)
}

// Stop ends the service in good order.
func (a *Azurite) Stop(ctx context.Context) error {
	return a.fault(ctx, "stop", azuriteFaults.stop)
}

// Restart starts a killed or stopped service again, at the same address, and waits
// until it takes connections.
func (a *Azurite) Restart(ctx context.Context) error {
	return a.fault(ctx, "restart", azuriteFaults.start)
}

// Pause freezes the service: its connections stay open and nothing answers.
func (a *Azurite) Pause(ctx context.Context) error {
	return a.fault(ctx, "pause", azuriteFaults.pause)
}

// Resume ends a Pause.
func (a *Azurite) Resume(ctx context.Context) error {
	return a.fault(ctx, "resume", azuriteFaults.resume)
}

func (a *Azurite) fault(ctx context.Context, what string, do func(azuriteFaults, context.Context) error) error {
	if a.faults == nil {
		return fmt.Errorf("%s a blob service of the user's own: %w", what, ErrUnsupported)
	}
	if err := do(a.faults, ctx); err != nil {
		return fmt.Errorf("%s Azurite: %w", what, err)
	}
	return nil
}

func newAzurite(ctx context.Context, dir, name string, keepState bool) (*Azurite, error) {
	if run.mode == Processes {
		s, err := azuritetest.New(ctx, dir, keepState)
		if err != nil {
			return nil, err
		}
		fmt.Printf("integration: %s: Azurite is a process at %s\n", name, s.Endpoint)
		return &Azurite{Service: s.Service, faults: azuriteProcess{s}}, nil
	}
	c, err := newAzuriteContainer(ctx, keepState)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start Azurite: %w", err), c.terminate())
	}
	fmt.Printf("integration: %s: Azurite is container %.12s of %s at %s\n", name, c.ctr.GetContainerID(), AzuriteImage(), c.addr)
	return &Azurite{Service: azuritetest.Emulator("http://" + c.addr + "/" + azuritetest.Account), faults: c}, nil
}

// azuriteContainer is Azurite in a container, on a network of its own.
type azuriteContainer struct{ server }

// newAzuriteContainer starts one. What it returns must be terminated also after
// an error.
func newAzuriteContainer(ctx context.Context, keepState bool) (_ *azuriteContainer, err error) {
	c := &azuriteContainer{server{engine: run.engine}}
	if c.network, err = newNetwork(ctx, run.engine); err != nil {
		return c, err
	}
	addr := c.network.address(0)
	c.addr = net.JoinHostPort(addr.String(), "10000")
	args := []string{"--skipApiVersionCheck", "--disableTelemetry", "--silent"}
	if keepState {
		args = append(args, "--location", "/data")
	} else {
		args = append(args, "--inMemoryPersistence")
	}
	ctr, err := tcazurite.Run(ctx, AzuriteImage(),
		tcazurite.WithEnabledServices(tcazurite.BlobService), testcontainers.WithCmdArgs(args...), c.network.at(addr, "azurite"),
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog("successfully listen")),
	)
	if ctr != nil {
		c.ctr = ctr
	}
	if err != nil {
		return c, err
	}
	return c, c.ready(ctx)
}

func (c *azuriteContainer) terminate() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := c.server.terminate()
	return errors.Join(err, c.network.remove(ctx))
}

// azuriteProcess is Azurite as a process of this machine, on loopback.
type azuriteProcess struct{ s *azuritetest.Server }

func (p azuriteProcess) kill(context.Context) error      { return p.s.Kill() }
func (p azuriteProcess) stop(context.Context) error      { return p.s.Stop() }
func (p azuriteProcess) start(ctx context.Context) error { return p.s.Restart(ctx) }
func (p azuriteProcess) pause(context.Context) error     { return p.s.Pause() }
func (p azuriteProcess) resume(context.Context) error    { return p.s.Resume() }
func (p azuriteProcess) terminate() error                { return p.s.Remove() }
