package certmagicazblob

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/adapters/internal/filestest"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

type keyInfo = filestest.KeyInfo

func newFiles(t *testing.T, client *container.Client, folder string) *Files[keyInfo] {
	t.Helper()
	files, err := NewFiles[keyInfo](client, folder)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The container does not exist before the first Store.
func TestFiles(t *testing.T) {
	for name, folder := range map[string]string{"container": "", "folder": "some folder/certificates"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filestest.Run(t, func(t *testing.T) func() filestest.Files {
				service := azuritetest.Shared(t)
				container := service.Fresh(t)
				return func() filestest.Files { return newFiles(t, service.Client(t, container, nil), folder) }
			})
		})
	}
	if _, err := NewFiles[keyInfo](nil, ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no container: %v", err)
	}
}

// A key of allowed length can have a blob's name that is too long.
func TestLongNames(t *testing.T) {
	files := newFiles(t, azuritetest.Shared(t).Client(t, "any", nil), "")
	if err := files.Store(t.Context(), strings.Repeat("ü", 400), nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Store: %v", err)
	}
}

func TestNames(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "a/b.crt": "a/b.crt", "wildcard_.example.com": "wildcard_.example.com", "a./b.": "a=2E/b=2E", "a...": "a..=2E",
		"a b=": "a=20b=3D", "ü": "=C3=BC", "user@example.com": "user@example.com",
	} {
		if got := blobName(key); got != want {
			t.Errorf("blobName(%q): %q, want %q", key, got, want)
		}
		if back, ok := keyOf(want); back != key || ok != (key != "") {
			t.Errorf("keyOf(%q): %q, %t", want, back, ok)
		}
	}
	for _, name := range []string{"a=", "a=2", "a=2e", "a=41", "a b", "a."} {
		if key, ok := keyOf(name); ok {
			t.Errorf("keyOf(%q): %q, although no key has this blob", name, key)
		}
	}
}

// Open has the locks and the values in two folders, which the URL's prefix can contain.
func TestOpen(t *testing.T) {
	for name, prefix := range map[string]string{"container": "", "prefix": "/caddy/one"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			service := azuritetest.Shared(t)
			containerName := service.Fresh(t)
			base, query, _ := strings.Cut(service.URL(containerName), "?")
			storage, client, err := Open[keyInfo](ctx, base+prefix+"?"+query)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(storage.Store(ctx, "a/b", []byte("value")), storage.Lock(ctx, "issue"), storage.Unlock(ctx, "issue")); err != nil {
				t.Error(err)
			}
			all := newFiles(t, service.Client(t, containerName, nil), prefix)
			keys, err := all.List(ctx, "", true)
			if got := strings.Join(keys, " "); err != nil || got != "files files/a files/a/b locks locks/issue" {
				t.Errorf("the container has %q, %v", got, err)
			}
			if text := storage.String(); !strings.Contains(text, containerName+prefix+"/files") || strings.Contains(text, "sig=") {
				t.Errorf("String: %s", text)
			}
			if err := client.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, bad := range []string{"azblob://emulator", "azblob://emulator/container/a.", "azblob://%zz/container", "mem:"} {
		if _, _, err := Open[keyInfo](t.Context(), bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Open(%q): %v", bad, err)
		}
	}
}
