// Package blobservice makes clients and containers in a blob service, for tests of users (holdfastcontainers) and of Holdfast
// itself (test/azuritetest).
package blobservice

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// The account of every Azurite. Its key is public: it is in the documentation.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const deleteTimeout = 20 * time.Second

// Service is the address and the account of a blob service.
type Service struct {
	Endpoint string // of the account, without a slash at the end
	Account  string
	Key      string
	// Emulator is set for Azurite, which differs from Azure in details.
	Emulator bool
}

// Emulator returns the service of the Azurite at an endpoint.
func Emulator(endpoint string) *Service {
	return &Service{Endpoint: strings.TrimRight(endpoint, "/"), Account: Account, Key: Key, Emulator: true}
}

// URL is a container's URL for holdfast.Open. It does not contain the key: tests with a real
// account have that in the environment.
func (s *Service) URL(containerName string) string {
	account := s.Account
	if s.Emulator {
		account = "emulator"
	}
	return "azblob://" + account + "/" + containerName + "?endpoint=" + url.QueryEscape(s.Endpoint)
}

// Fresh returns the name of a container that does not exist yet. If the test creates it, it is
// deleted at the end.
func (s *Service) Fresh(tb testing.TB) string {
	tb.Helper()
	name := "holdfast-" + strings.ToLower(rand.Text())
	client := s.Client(tb, name, nil)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
		defer cancel()
		_, err := client.Delete(ctx, nil)
		var offline interface{ Timeout() bool }
		if err == nil || bloberror.HasCode(err, bloberror.ContainerNotFound) || s.Emulator && errors.As(err, &offline) {
			return // the test may have stopped its emulator
		}
		tb.Error(err)
	})
	return name
}

// Client returns a client for a container. Its connections are its own and end with the test.
// If wrap is not nil, requests go through the transport that it returns.
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

// Container returns a client for a new container.
func (s *Service) Container(tb testing.TB) *container.Client {
	tb.Helper()
	client := s.Client(tb, s.Fresh(tb), nil)
	if _, err := client.Create(tb.Context(), nil); err != nil {
		tb.Fatal(err)
	}
	return client
}
