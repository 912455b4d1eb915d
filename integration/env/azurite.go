package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	tcazurite "github.com/testcontainers/testcontainers-go/modules/azure/azurite"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/internal/blobservice"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// Azurite is a blob service. A fault returns when it has taken effect, or with an error that
// wraps [ErrUnsupported]; [Check] handles both.
type Azurite struct {
	// Service has the address and makes clients.
	*azuritetest.Service
	own *servers // one; nil if others use it, too
}

func (a *Azurite) list() *servers { return a.own }

// StartAzurite starts a service for this test alone and removes it at the end. With keepState it
// keeps its state on disk over restarts; otherwise a restart loses everything.
func StartAzurite(tb testing.TB, keepState bool) *Azurite {
	tb.Helper()
	return own(tb, func(ctx context.Context, dir string) (*Azurite, error) { return newAzurite(ctx, dir, keepState) })
}

// SharedAzurite returns a service that all tests of the package share, and in containers those of
// all packages. They inject faults only through proxies of their own.
func SharedAzurite(tb testing.TB) *Azurite {
	tb.Helper()
	return suite.azurite.get(tb, func() (*Azurite, error) {
		if suite.mode == Endpoints {
			if _, err := endpoint(azuritetest.EnvURL); err != nil {
				return nil, err
			}
			service, err := azuritetest.FromEnvironment()
			return &Azurite{Service: service}, err
		}
		if suite.mode == Containers {
			c := holdfastcontainers.Azurite(tb, holdfastcontainers.WithImage(AzuriteImage()))
			fmt.Printf("integration: shared: Azurite of %s at %s\n", AzuriteImage(), c.Endpoint)
			return &Azurite{Service: blobservice.Emulator(c.Endpoint)}, nil
		}
		dir := filepath.Join(suite.dir, "azurite")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		return newAzurite(context.Background(), dir, false)
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
func (a *Azurite) Kill(ctx context.Context) error { return a.own.Kill(ctx, 0) }

// Stop shuts the service down cleanly.
func (a *Azurite) Stop(ctx context.Context) error { return a.own.fault(ctx, "stop", 0, server.stop) }

// Restart starts a killed or stopped service at the same address, and waits until it accepts
// connections.
func (a *Azurite) Restart(ctx context.Context) error { return a.own.Restart(ctx, 0) }

// Pause freezes the service: connections stay open, but nothing answers.
func (a *Azurite) Pause(ctx context.Context) error { return a.own.Pause(ctx, 0) }

// Resume ends a Pause.
func (a *Azurite) Resume(ctx context.Context) error { return a.own.Resume(ctx, 0) }

func newAzurite(ctx context.Context, dir string, keepState bool) (*Azurite, error) {
	if suite.mode == Processes {
		s, err := azuritetest.New(ctx, dir, keepState)
		if err != nil {
			return nil, err
		}
		return &Azurite{Service: s.Service, own: processes("Azurite", s)}, nil
	}
	args := []string{"--skipApiVersionCheck", "--disableTelemetry", "--silent"}
	if keepState {
		args = append(args, "--location", "/data")
	} else {
		args = append(args, "--inMemoryPersistence")
	}
	s, err := startContainers(ctx, 1, containers{
		what: "Azurite", name: "azurite", image: AzuriteImage(), port: "10000", ready: "successfully listen",
		run: func(ctx context.Context, more ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
			return notNil(tcazurite.Run(ctx, AzuriteImage(), append(more, tcazurite.WithEnabledServices(tcazurite.BlobService),
				testcontainers.WithCmdArgs(args...))...))
		},
	})
	if err != nil {
		return nil, err
	}
	return &Azurite{Service: blobservice.Emulator("http://" + s.all[0].addr() + "/" + azuritetest.Account), own: s}, nil
}
