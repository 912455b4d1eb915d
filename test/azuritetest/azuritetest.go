// Package azuritetest gives tests a real blob service: it installs Azurite, Microsoft's
// emulator, starts it on loopback and removes it at the end. So "go test" needs no preparation
// on a new machine that has Node.js.
//
// A package's tests call it from TestMain:
//
//	func TestMain(m *testing.M) { azuritetest.Main(m) }
//
// All tests of the package share the service of [Shared], which starts when a test first needs
// it; each test has containers of its own. Tests that stop or pause the service start one with
// [Start].
//
// No test is skipped: if no service can be started, the test fails and says what to do.
package azuritetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/blobservice"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvURL names the variable that makes the tests use a service that is running already:
// azblob://emulator/any?endpoint=http://127.0.0.1:10000/devstoreaccount1, or
// azblob://ACCOUNT/any together with AZURE_STORAGE_KEY. The tests create and delete containers
// of their own in it.
const EnvURL = testservers.EnvAzblobURL

// Service is the address and the account of a blob service.
type Service = blobservice.Service

// The account of every Azurite.
const (
	Account = blobservice.Account
	Key     = blobservice.Key
)

// FromEnvironment returns the service that [EnvURL] names.
func FromEnvironment() (*Service, error) { return parse(os.Getenv(EnvURL)) }

// parse returns the service at a URL of the form that [EnvURL] describes.
func parse(raw string) (*Service, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "azblob" || u.Host == "" {
		return nil, fmt.Errorf("%s must look like azblob://ACCOUNT/CONTAINER", EnvURL)
	}
	s := &Service{Endpoint: strings.TrimRight(u.Query().Get("endpoint"), "/"), Account: u.Host, Key: os.Getenv("AZURE_STORAGE_KEY")}
	if u.Host == "emulator" {
		s.Account, s.Key, s.Emulator = Account, Key, true
		if s.Endpoint == "" {
			s.Endpoint = "http://127.0.0.1:10000/" + Account
		}
	}
	if s.Key == "" {
		return nil, fmt.Errorf("%s names the account %s, so AZURE_STORAGE_KEY must have its key", EnvURL, s.Account)
	}
	if s.Endpoint == "" {
		s.Endpoint = "https://" + s.Account + ".blob.core.windows.net"
	}
	return s, nil
}

// keepIdle makes Azurite keep idle connections open. By itself it closes them after 5 s, and a
// request that is sent in that moment fails. It ignores its option for that and sets the default.
const keepIdle = `const http = require("http"), create = http.createServer;
http.createServer = (...args) =>
	Object.defineProperty(create(...args), "keepAliveTimeout", { get: () => 3600e3, set: () => {} });
`

func writeKeepIdle(dir string) (path string, err error) {
	if path, err = filepath.Abs(filepath.Join(dir, "keep-idle.cjs")); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte(keepIdle), 0o600)
}

// Main runs the tests, stops the shared service, fails if goroutines are left over, and exits.
//
// Tests with Azure's leases mostly wait, since no lease is shorter than 15 s. So more of them
// run in parallel than there are processors, unless the flag -parallel says how many.
func Main(m *testing.M) {
	serverprocess.Parallel(64)
	serverprocess.Main(m)
}

var shared = serverprocess.Shared(func(ctx context.Context, dir string) (*Server, error) { return New(ctx, dir, false) })

// Shared returns the service that the tests of a package share.
func Shared(tb testing.TB) *Service {
	tb.Helper()
	if os.Getenv(EnvURL) == "" {
		return shared(tb).Service
	}
	service, err := FromEnvironment()
	if err != nil {
		tb.Fatal(err)
	}
	return service
}

// Server is an Azurite that a test can stop and pause. Its methods are safe for concurrent use.
type Server struct {
	*Service
	*serverprocess.Server
	persist bool
}

// Start starts an Azurite for this test alone and removes it at the end. With persist it keeps
// its data over restarts.
func Start(tb testing.TB, persist bool) *Server {
	tb.Helper()
	s, err := New(tb.Context(), tb.TempDir(), persist)
	return serverprocess.Owned(tb, s, err)
}

// New is like [Start], with the data under dir. The caller removes the server.
func New(ctx context.Context, dir string, persist bool) (*Server, error) {
	path, err := testservers.Azurite(ctx)
	if err != nil {
		return nil, err
	}
	preload, err := writeKeepIdle(dir)
	if err != nil {
		return nil, err
	}
	s, err := serverprocess.StartOne(ctx, dir, serverprocess.Config{
		Name: "Azurite", Program: "node", Args: func(port, data string) []string {
			args := []string{path, "--blobHost", serverprocess.Host, "--blobPort", port, "--skipApiVersionCheck", "--disableTelemetry", "--silent"}
			if persist {
				return append(args, "--location", data)
			}
			// An orderly stop waits for idle connections in Node.js 18, so not with persist.
			return append([]string{"--require", preload}, append(args, "--inMemoryPersistence")...)
		},
	})
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%w; %s", err, testservers.AzuriteAdvice)
	}
	if err != nil {
		return nil, err
	}
	return &Server{blobservice.Emulator("http://" + s.Addr() + "/" + Account), s, persist}, nil
}

// Stop ends the server in good order. Kill, in contrast, can lose the last seconds of what the
// server keeps on disk.
func (s *Server) Stop() error {
	if !s.persist {
		return s.Kill() // there is nothing to keep
	}
	return s.Server.Stop()
}

// Restart stops the server and starts it again at the same address.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Server.Restart(ctx)
}
