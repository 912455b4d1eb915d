// Package testservers finds the servers that the tests need, or fetches them into the folder
// .cache of the module, each once. It writes to standard error what it fetches, how big it
// is, and every few seconds that it is still at work.
//
// It uses little but the standard library, so that a new machine compiles it soon.
package testservers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	modulePath   = "github.com/holdfast-go/holdfast"
	fetchTimeout = 10 * time.Minute
	stillEvery   = 10 * time.Second
)

// cached is a file or a folder in the cache.
type cached struct {
	name string // of the file or folder
	size string // of what is fetched, for people: "42 MB, by pip"
	// get makes the file or folder at path. It may use path's folder for what it needs on
	// the way.
	get func(ctx context.Context, path string) error
}

// path is where it is, or would be.
func (t cached) path() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cache", t.name), nil
}

// there says whether it has been fetched.
func (t cached) there() bool {
	path, err := t.path()
	return err == nil && exists(path)
}

// fetched returns the path, and fetches it first if it is not there. The test binaries
// of several packages may call it at the same time: a file lock lets one of them fetch, and
// a rename makes the result whole.
func (t cached) fetched(ctx context.Context) (string, error) {
	path, err := t.path()
	if err != nil || exists(path) {
		return path, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, 50*time.Millisecond); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Unlock() }()
	if exists(path) {
		return path, nil // another process was quicker
	}
	return path, t.fetch(ctx, dir, path)
}

// fetch reports what it does: under "go test" or over a slow line it can take minutes.
func (t cached) fetch(ctx context.Context, dir, path string) error {
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "fetching %s into %s (%s)\n", t.name, dir, t.size)
	stop := every(stillEvery, func() {
		fmt.Fprintf(os.Stderr, "still fetching %s, %v so far\n", t.name, time.Since(begin).Round(time.Second))
	})
	defer stop()
	fresh := filepath.Join(tmp, t.name)
	if err := t.get(ctx, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "fetched %s in %v\n", t.name, time.Since(begin).Round(time.Second/10))
	return nil
}

// every calls f each d until stop, which waits for a call under way.
func every(d time.Duration, f func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// run runs a program. Its error has the end of what the program wrote.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, Tail(out))
	}
	return nil
}

// Tail is the last part of a program's output.
func Tail(out []byte) string {
	const most = 2000
	if len(out) > most {
		out = append([]byte("… "), out[len(out)-most:]...)
	}
	return strings.TrimSpace(string(out))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// moduleRoot is the nearest folder upward whose go.mod is this module's.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s above %s", modulePath, start)
		}
	}
}
