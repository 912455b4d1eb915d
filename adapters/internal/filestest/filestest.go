// Package filestest tests what stores the values of a certmagic Storage.
package filestest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/adapters/internal/filekeys"
	"github.com/holdfast-go/holdfast/driver"
)

// KeyInfo has the fields of certmagic.KeyInfo.
type KeyInfo struct {
	Key        string
	Modified   time.Time
	Size       int64
	IsTerminal bool
}

// Files is a certmagic Storage without its locks.
type Files = certmagiclock.Files[KeyInfo]

// Run runs all tests. Each call of create returns what stores nowhere else than the others of
// the same test.
func Run(t *testing.T, create func(t *testing.T) (another func() Files)) {
	t.Helper()
	for name, test := range map[string]func(ctx context.Context, t *testing.T, another func() Files){
		"Values": values, "MissingKeys": missingKeys, "Lists": lists, "InvalidArguments": invalidArguments,
		"ConcurrentStores": concurrentStores, "EndedContext": endedContext,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			t.Cleanup(cancel)
			test(ctx, t, create(t))
		})
	}
}

func values(ctx context.Context, t *testing.T, another func() Files) {
	files := another()
	for name, value := range map[string][]byte{"empty": nil, "text": []byte("$key"), "longest": bytes.Repeat([]byte{0xff},
		filekeys.MaxValue)} {
		for range 2 { // the second replaces the first
			if err := files.Store(ctx, name, value); err != nil {
				t.Fatal(err)
			}
		}
		got, err := another().Load(ctx, name)
		if err != nil || got == nil || !bytes.Equal(got, value) {
			t.Errorf("Load of the %s value: %d bytes, %v", name, len(got), err)
		}
		info, err := files.Stat(ctx, name)
		if err != nil || info.Key != name || info.Size != int64(len(value)) || !info.IsTerminal || time.Since(info.Modified).Abs() > time.Hour {
			t.Errorf("Stat of the %s value: %+v, %v", name, info, err)
		}
	}
	err := files.Store(ctx, "long", make([]byte, filekeys.MaxValue+1))
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "16 MB") || files.Exists(ctx, "long") {
		t.Errorf("a value that is too long: %v", err)
	}
}

func missingKeys(ctx context.Context, t *testing.T, another func() Files) {
	files := another()
	check := func(path string) {
		t.Helper()
		_, load := files.Load(ctx, path)
		_, stat := files.Stat(ctx, path)
		_, list := files.List(ctx, path, true)
		_, direct := files.List(ctx, path, false)
		for what, err := range map[string]error{"Load": load, "Stat": stat, "List": list, "List of the first level": direct} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %q: %v", what, path, err)
			}
		}
		if files.Exists(ctx, path) {
			t.Errorf("%q exists", path)
		}
		if err := files.Delete(ctx, path); err != nil {
			t.Errorf("Delete of %q: %v", path, err)
		}
	}
	check("")
	check("a")
	if err := errors.Join(files.Store(ctx, "a/b", nil), files.Store(ctx, "a0", nil), files.Store(ctx, "a-", nil)); err != nil {
		t.Fatal(err)
	}
	check("a/b/c")
	check("A") // keys are case-sensitive
	check("a/b0")
	if err := files.Delete(ctx, "a/"); err != nil { // the directory, with all that is below it
		t.Error(err)
	}
	check("a")
	check("a/b")
	if keys, err := files.List(ctx, "", true); err != nil || !slices.Equal(keys, []string{"a-", "a0"}) {
		t.Errorf("what is left: %q, %v", keys, err)
	}
}

func lists(ctx context.Context, t *testing.T, another func() Files) {
	files := another()
	for _, key := range []string{"certificates/acme/wildcard_.example.com/a.crt", "certificates/acme/example.com/a.crt", "certificates/acme.",
		"ümlaut/=2E/a b", "ocsp/a..."} {
		if err := files.Store(ctx, "/"+key+"/", []byte(key)); err != nil {
			t.Fatal(err)
		}
		if value, err := files.Load(ctx, key); err != nil || string(value) != key {
			t.Errorf("Load of %q: %q, %v", key, value, err)
		}
	}
	for _, test := range []struct {
		path      string
		recursive bool
		want      []string
	}{
		{"", false, []string{"certificates", "ocsp", "ümlaut"}},
		{"certificates", false, []string{"certificates/acme", "certificates/acme."}},
		{"certificates/", true, []string{"certificates/acme", "certificates/acme/example.com", "certificates/acme/example.com/a.crt",
			"certificates/acme/wildcard_.example.com", "certificates/acme/wildcard_.example.com/a.crt", "certificates/acme."}},
		{"ümlaut", true, []string{"ümlaut/=2E", "ümlaut/=2E/a b"}},
		{"ocsp", true, []string{"ocsp/a..."}},
		{"ocsp/a...", true, nil}, // a file
	} {
		if keys, err := files.List(ctx, test.path, test.recursive); err != nil || !slices.Equal(keys, test.want) {
			t.Errorf("List of %q, %t: %q, %v", test.path, test.recursive, keys, err)
		}
	}
	if info, err := files.Stat(ctx, "certificates/acme"); err != nil || info.IsTerminal || info.Key != "certificates/acme" ||
		!files.Exists(ctx, "certificates/acme") {
		t.Errorf("Stat of a directory: %+v, %v", info, err)
	}
}

func invalidArguments(ctx context.Context, t *testing.T, another func() Files) {
	files := another()
	_, load := files.Load(ctx, "a\xff")
	_, stat := files.Stat(ctx, "a\x00")
	_, list := files.List(ctx, strings.Repeat("a", filekeys.MaxKey+1), true)
	for what, err := range map[string]error{"Load": load, "Stat": stat, "List": list,
		"Store at the root": files.Store(ctx, "/", nil), "Delete": files.Delete(ctx, "a\xff")} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Many processes create the same key. None fails, and the value is one of theirs.
func concurrentStores(ctx context.Context, t *testing.T, another func() Files) {
	var stores sync.WaitGroup
	for i := range byte(32) {
		files := another()
		stores.Go(func() {
			if err := files.Store(ctx, "key", bytes.Repeat([]byte{i}, 1000)); err != nil {
				t.Error(err)
			}
		})
	}
	stores.Wait()
	value, err := another().Load(ctx, "key")
	if err != nil || len(value) != 1000 || len(bytes.Trim(value, string(value[:1]))) != 0 {
		t.Errorf("Load: %d bytes, %v", len(value), err)
	}
}

func endedContext(ctx context.Context, t *testing.T, another func() Files) {
	files := another()
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, load := files.Load(ctx, "key")
	for what, err := range map[string]error{"Store": files.Store(ctx, "key", nil), "Load": load, "Delete": files.Delete(ctx, "key")} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if files.Exists(ctx, "key") {
		t.Error("a key exists whose Stat failed")
	}
}
