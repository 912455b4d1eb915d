package azuritetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

func TestMain(m *testing.M) { Main(m) }

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func upload(t *testing.T, c *container.Client) {
	t.Helper()
	if _, err := c.NewBlockBlobClient("b").Upload(within(t, 30*time.Second), nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestShared(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { _ = Shared(t) })
	}
	wg.Wait()
	upload(t, Shared(t).Container(t))
}

func TestRestart(t *testing.T) {
	for name, persist := range map[string]bool{"keeps": true, "forgets": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, persist)
			c := s.Container(t)
			upload(t, c)
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := c.NewBlobClient("b").GetProperties(within(t, 30*time.Second), nil)
			if kept := err == nil; kept != persist {
				t.Errorf("after a restart: %v", err)
			}
			if err != nil && !bloberror.HasCode(err, bloberror.ContainerNotFound, bloberror.BlobNotFound) {
				t.Error(err)
			}
		})
	}
}

func TestPause(t *testing.T) {
	s := Start(t, false)
	c := s.Container(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetProperties(within(t, 200*time.Millisecond), nil); err == nil {
		t.Error("a paused server answered")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	upload(t, c)
}

func TestParse(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "")
	s, err := parse("azblob://emulator/x")
	if err != nil || !s.Emulator || s.Endpoint != "http://127.0.0.1:10000/devstoreaccount1" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "azblob:", "http://emulator/x", "azblob://account/x"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	if s, err := parse("azblob://account/x"); err != nil || s.Emulator || s.Endpoint != "https://account.blob.core.windows.net" {
		t.Errorf("%+v, %v", s, err)
	}
}
