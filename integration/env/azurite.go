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

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/internal/blobservice"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// Azurite is a blob service. A fault returns when it has taken effect, or with an error that
// wraps [ErrUnsupported]; [Check] handles both.
type Azurite struct {
	// Service has the address and makes clients.
	*azuritetest.Service
	faults azuriteFaults // nil for a user's own service
}

// azuriteFaults injects faults into a service.
type azuriteFaults interface {
	kill(ctx context.Context) error
	stop(ctx context.Context) error
	start(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	terminate() error
}

// StartAzurite starts a service for this test alone and removes it at the end. With keepState it
// keeps its state on disk over restarts; otherwise a restart loses everything.
func StartAzurite(tb testing.TB, keepState bool) *Azurite {
	tb.Helper()
	if suite.mode == Endpoints {
		skip(tb, "it injects faults into servers, which is not done to a user's own: it needs containers or processes")
	}
	a, err := newAzurite(tb.Context(), tb.TempDir(), tb.Name(), keepState)
	Check(tb, err)
	tb.Cleanup(func() {
		if err := a.faults.terminate(); err != nil {
			tb.Error(err)
		}
	})
	countUse()
	return a
}

// SharedAzurite returns a service that all tests of the package share, and in containers those of
// all packages. They inject faults only through proxies of their own.
func SharedAzurite(tb testing.TB) *Azurite {
	tb.Helper()
	return suite.azurite.get(tb, func() (*Azurite, func() error, error) {
		if suite.mode == Endpoints {
			if os.Getenv(azuritetest.EnvURL) == "" {
				return nil, nil, fmt.Errorf("%w: %s is not set", ErrUnsupported, azuritetest.EnvURL)
			}
			service, err := azuritetest.FromEnvironment()
			return &Azurite{Service: service}, nil, err
		}
		if suite.mode == Containers {
			c := holdfastcontainers.Azurite(tb, holdfastcontainers.WithImage(AzuriteImage()))
			fmt.Printf("integration: shared: Azurite of %s at %s\n", AzuriteImage(), c.Endpoint)
			return &Azurite{Service: blobservice.Emulator(c.Endpoint)}, nil, nil
		}
		dir := filepath.Join(suite.dir, "azurite")
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

// FreshURL returns a URL for holdfast.Open with a container of this test's own, which is removed
// at the end of the test.
func (a *Azurite) FreshURL(tb testing.TB) string {
	tb.Helper()
	return a.URL(a.Fresh(tb))
}

// Kill ends the service like a crash (SIGKILL). The last seconds of its state on disk may be
// lost.
func (a *Azurite) Kill(ctx context.Context) error {
	return a.fault(ctx, "kill", azuriteFaults.kill)
}

// Stop shuts the service down cleanly.
func (a *Azurite) Stop(ctx context.Context) error {
	return a.fault(ctx, "stop", azuriteFaults.stop)
}

// Restart starts a killed or stopped service at the same address, and waits until it accepts
// connections.
func (a *Azurite) Restart(ctx context.Context) error {
	return a.fault(ctx, "restart", azuriteFaults.start)
}

// Pause freezes the service: connections stay open, but nothing answers.
func (a *Azurite) Pause(ctx context.Context) error {
	return a.fault(ctx, "pause", azuriteFaults.pause)
}

// Resume ends a Pause.
func (a *Azurite) Resume(ctx context.Context) error {
	return a.fault(ctx, "resume", azuriteFaults.resume)
}

func (a *Azurite) fault(ctx context.Context, what string, do func(azuriteFaults, context.Context) error) error {
	if a.faults == nil {
		return fmt.Errorf("%s a user's own blob service: %w", what, ErrUnsupported)
	}
	if err := do(a.faults, ctx); err != nil {
		return fmt.Errorf("%s Azurite: %w", what, err)
	}
	return nil
}

func newAzurite(ctx context.Context, dir, name string, keepState bool) (*Azurite, error) {
	if suite.mode == Processes {
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
	return &Azurite{Service: blobservice.Emulator("http://" + c.addr + "/" + azuritetest.Account), faults: c}, nil
}

// azuriteContainer is Azurite in a container, on a network of its own.
type azuriteContainer struct{ server }

// newAzuriteContainer starts a container. The result must be terminated even after an error.
func newAzuriteContainer(ctx context.Context, keepState bool) (_ *azuriteContainer, err error) {
	c := &azuriteContainer{server{engine: suite.engine}}
	if c.network, err = newNetwork(ctx, suite.engine); err != nil {
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
		tcazurite.WithEnabledServices(tcazurite.BlobService), testcontainers.WithCmdArgs(args...), c.network.attach(addr, "azurite"),
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog("successfully listen")),
	)
	if ctr != nil {
		c.ctr = ctr
	}
	if err != nil {
		return c, err
	}
	return c, c.awaitReady(ctx)
}

func (c *azuriteContainer) terminate() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	err := c.server.terminate()
	return errors.Join(err, c.network.remove(ctx))
}

// azuriteProcess is Azurite as a local process, on loopback.
type azuriteProcess struct{ s *azuritetest.Server }

func (p azuriteProcess) kill(context.Context) error      { return p.s.Kill() }
func (p azuriteProcess) stop(context.Context) error      { return p.s.Stop() }
func (p azuriteProcess) start(ctx context.Context) error { return p.s.Restart(ctx) }
func (p azuriteProcess) pause(context.Context) error     { return p.s.Pause() }
func (p azuriteProcess) resume(context.Context) error    { return p.s.Resume() }
func (p azuriteProcess) terminate() error                { return p.s.Remove() }
