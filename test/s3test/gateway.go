package s3test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// EnvGateway is the variable with a program versitygw, a real server of S3's protocol over a folder. EnvFaultyGateway has one of
// version 1.7.0, which lets several conditional writes win. tools/s3.sh makes them.
const (
	EnvGateway       = "HOLDFAST_TEST_VERSITYGW"
	EnvFaultyGateway = "HOLDFAST_TEST_VERSITYGW_FAULTY"
)

// Gateway is a real server. The bucket [Bucket] exists, and the credentials are those of [Server].
type Gateway struct {
	*serverprocess.Server
	locked *atomic.Bool // it has another secret
}

// StartGateway starts the program that a variable names for this test alone, and skips the test if it names none.
func StartGateway(tb testing.TB, variable string) *Gateway {
	tb.Helper()
	program := serverprocess.Given(tb, variable, "tools/s3.sh builds a real server")
	locked := &atomic.Bool{}
	return &Gateway{locked: locked, Server: serverprocess.StartFor(tb, serverprocess.Config{
		Name: "versitygw", Program: program, Env: []string{"GOMAXPROCS=8"}, // so that writes race, also on one processor
		Args: func(port, data string) []string {
			secret := Secret
			if locked.Load() {
				secret += "-another"
			}
			return []string{"--port", serverprocess.Host + ":" + port, "--access", KeyID, "--secret", secret, "--region", Region, "--quiet",
				"--keep-alive", "posix", "--versioning-dir", filepath.Join(data, "old"), filepath.Join(data, "new")}
		},
		Prepare: func(_ context.Context, _, data string, _ func(string, ...string) error) error {
			return errors.Join(os.MkdirAll(filepath.Join(data, "new", Bucket), 0o700), os.Mkdir(filepath.Join(data, "old"), 0o700))
		},
	})}
}

// Endpoint is the server's address.
func (g *Gateway) Endpoint() string { return "http://" + g.Addr() }

// Deny makes the server refuse the credential until allow is called.
func (g *Gateway) Deny(ctx context.Context) (allow func(), err error) {
	g.locked.Store(true)
	return func() {
		g.locked.Store(false)
		if err := g.Crash(ctx); err != nil {
			panic(err) // no later clause can pass
		}
	}, g.Crash(ctx)
}
