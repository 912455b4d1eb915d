package testservers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inModule makes a folder of an empty module the working directory.
func inModule(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module "+modulePath+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "sub"))
	return root
}

// Concurrent calls fetch the tool once. All of them find it complete, and nothing else is left.
func TestToolIsFetchedOnce(t *testing.T) {
	root := inModule(t)
	var fetched atomic.Int32
	tool := cached{name: "tool", fetch: func(_ context.Context, path string) error {
		fetched.Add(1)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "archive"), nil, 0o600); err != nil {
			return err
		}
		return os.WriteFile(path, []byte("whole"), 0o600)
	}}
	if tool.isCached() {
		t.Error("the tool is cached before it was fetched")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := tool.ensure(t.Context())
			if err != nil || path != filepath.Join(root, ".cache", "tool") {
				t.Errorf("%q, %v", path, err)
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != "whole" {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
	wg.Wait()
	if fetched.Load() != 1 || !tool.isCached() {
		t.Errorf("fetched %d times, cached: %v", fetched.Load(), tool.isCached())
	}
	if left, err := filepath.Glob(filepath.Join(root, ".cache", "fetch-*")); err != nil || left != nil {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// A failed fetch leaves nothing in the cache, and the next call fetches again.
func TestFailedFetchLeavesNothing(t *testing.T) {
	inModule(t)
	broken := errors.New("broken")
	tool := cached{name: "tool", fetch: func(_ context.Context, path string) error {
		return errors.Join(os.WriteFile(path, []byte("half"), 0o600), broken)
	}}
	if _, err := tool.ensure(t.Context()); !errors.Is(err, broken) || tool.isCached() {
		t.Errorf("%v, cached: %v", err, tool.isCached())
	}
	tool.fetch = func(_ context.Context, path string) error { return os.WriteFile(path, nil, 0o600) }
	if _, err := tool.ensure(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOutsideOfTheModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := (cached{name: "tool"}).ensure(t.Context()); err == nil {
		t.Error("a cache was found outside of the module")
	}
}

// The function is called at every interval, and not after the stop.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		stop := every(10*time.Second, func() { calls++ })
		time.Sleep(35 * time.Second)
		stop()
		if time.Sleep(time.Minute); calls != 3 {
			t.Errorf("%d calls in 35 s, want 3", calls)
		}
	})
}
