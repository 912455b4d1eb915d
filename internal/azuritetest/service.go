package azuritetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// The account of every Azurite; its documentation publishes the key.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Service is a blob service and how to reach it.
type Service struct {
	Endpoint string // of the account, without a slash at the end
	Account  string
	Key      string
	// Emulator says that it is Azurite, which differs from Azure in details.
	Emulator bool
}

func (p *process) service() *Service {
	return &Service{Endpoint: "http://" + p.addr() + "/" + Account, Account: Account, Key: Key, Emulator: true}
}

// Emulator is the Azurite at an endpoint.
func Emulator(endpoint string) *Service {
	return &Service{Endpoint: strings.TrimRight(endpoint, "/"), Account: Account, Key: Key, Emulator: true}
}

// FromEnvironment is the service that [EnvURL] names.
func FromEnvironment() (*Service, error) { return parse(os.Getenv(EnvURL)) }

// parse reads a URL of [EnvURL].
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

// URL is what holdfast.Open takes for a container. The key is not in it: tests
// against a real account have it in the environment.
func (s *Service) URL(containerName string) string {
	account := s.Account
	if s.Emulator {
		account = "emulator"
	}
	return "azblob://" + account + "/" + containerName + "?endpoint=" + url.QueryEscape(s.Endpoint)
}

// Fresh returns the name of a container that does not exist yet, and deletes it
// at the end of the test if it does by then.
func (s *Service) Fresh(tb testing.TB) string {
	tb.Helper()
	name := "holdfast-" + strings.ToLower(rand.Text())
	client := s.Client(tb, name, nil)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		_, err := client.Delete(ctx, nil)
		var offline interface{ Timeout() bool }
		if err == nil || bloberror.HasCode(err, bloberror.ContainerNotFound) || s.Emulator && errors.As(err, &offline) {
			return // an emulator that the test has stopped keeps nothing
		}
		tb.Error(err)
	})
	return name
}

// Client is a client for a container, with connections of its own that end with
// the test. wrap, if any, goes between the client and the network.
func (s *Service) Client(tb testing.TB, containerName string, wrap func(http.RoundTripper) http.RoundTripper) *container.Client {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	tb.Cleanup(transport.CloseIdleConnections)
	var rt http.RoundTripper = transport
	if wrap != nil {
		rt = wrap(rt)
	}
	options := &container.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: &http.Client{Transport: rt},
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}}
	key, err := container.NewSharedKeyCredential(s.Account, s.Key)
	if err != nil {
		tb.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(s.Endpoint+"/"+containerName, key, options)
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Container is a client for a fresh container that exists.
func (s *Service) Container(tb testing.TB) *container.Client {
	tb.Helper()
	client := s.Client(tb, s.Fresh(tb), nil)
	if _, err := client.Create(tb.Context(), nil); err != nil {
		tb.Fatal(err)
	}
	return client
}
