// Package testservers finds the server programs that the tests need, or fetches them once into
// the folder .cache of the module. While it fetches, it writes to standard error what it
// fetches, how large that is, and every few seconds that it is still working.
//
// It needs little more than the standard library, so that it compiles quickly on a new machine.
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
	reportEvery  = 10 * time.Second
)

// cached is a file or a folder in the cache.
type cached struct {
	name string // of the file or folder
	size string // of the download, for people: "42 MB, by pip"
	// fetch creates the file or folder at path. It may keep temporary files in the folder
	// of path.
	fetch func(ctx context.Context, path string) error
}

// path returns where it is, or will be.
func (t cached) path() (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cache", t.name), nil
}

// isCached reports whether it has been fetched.
func (t cached) isCached() bool {
	path, err := t.path()
	return err == nil && exists(path)
}

// ensure returns the path, and fetches the file or folder first if it is missing. Test binaries
// of several packages may call it at the same time: a file lock lets one of them fetch, and a
// rename makes the result appear complete.
func (t cached) ensure(ctx context.Context) (string, error) {
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
		return path, nil // another process has fetched it
	}
	return path, t.fetchInto(ctx, dir, path)
}

// fetchInto fetches to path, which is in dir, and reports progress: it can take minutes.
func (t cached) fetchInto(ctx context.Context, dir, path string) error {
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "fetching %s into %s (%s)\n", t.name, dir, t.size)
	stop := every(reportEvery, func() {
		fmt.Fprintf(os.Stderr, "still fetching %s, %v so far\n", t.name, time.Since(begin).Round(time.Second))
	})
	defer stop()
	fresh := filepath.Join(tmp, t.name)
	if err := t.fetch(ctx, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "fetched %s in %v\n", t.name, time.Since(begin).Round(time.Second/10))
	return nil
}

// every calls f at intervals of d until stop is called, which waits for a running call.
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

// run runs a program. Its error has the end of the program's output.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, Tail(out))
	}
	return nil
}

// runs checks that a fetched program runs on this machine. It may lack libraries: mongod needs libcurl4 and OpenSSL 3.
func runs(ctx context.Context, program string) error {
	if err := run(ctx, program, "--version"); err != nil {
		return fmt.Errorf("the fetched program does not run on this machine: %w", err)
	}
	return nil
}

// onPath returns the path of the first of these programs that the system has, or "".
func onPath(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Tail returns the last part of a program's output.
func Tail(out []byte) string {
	const maxLength = 2000
	if len(out) > maxLength {
		out = append([]byte("… "), out[len(out)-maxLength:]...)
	}
	return strings.TrimSpace(string(out))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// ModuleRoot returns the nearest folder, upward from the working directory, with the go.mod of this module.
func ModuleRoot() (string, error) {
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
