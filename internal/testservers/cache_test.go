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

// inModule makes the working directory a folder of an empty module.
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

// Many ask at the same time: one fetches, all get the whole tool, and nothing else is left.
func TestToolIsFetchedOnce(t *testing.T) {
	root := inModule(t)
	var fetched atomic.Int32
	tool := cached{name: "tool", get: func(_ context.Context, path string) error {
		fetched.Add(1)
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "archive"), nil, 0o600); err != nil {
			return err
		}
		return os.WriteFile(path, []byte("whole"), 0o600)
	}}
	if tool.there() {
		t.Error("the tool is there before it was fetched")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := tool.fetched(t.Context())
			if err != nil || path != filepath.Join(root, ".cache", "tool") {
				t.Errorf("%q, %v", path, err)
			}
			if content, err := os.ReadFile(path); err != nil || string(content) != "whole" {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
	wg.Wait()
	if fetched.Load() != 1 || !tool.there() {
		t.Errorf("fetched %d times, there: %v", fetched.Load(), tool.there())
	}
	if left, err := filepath.Glob(filepath.Join(root, ".cache", "fetch-*")); err != nil || left != nil {
		t.Errorf("left over: %q, %v", left, err)
	}
}

// A tool whose fetching failed is not there, and is fetched again.
func TestFailedFetchLeavesNothing(t *testing.T) {
	inModule(t)
	broken := errors.New("broken")
	tool := cached{name: "tool", get: func(_ context.Context, path string) error {
		return errors.Join(os.WriteFile(path, []byte("half"), 0o600), broken)
	}}
	if _, err := tool.fetched(t.Context()); !errors.Is(err, broken) || tool.there() {
		t.Errorf("%v, there: %v", err, tool.there())
	}
	tool.get = func(_ context.Context, path string) error { return os.WriteFile(path, nil, 0o600) }
	if _, err := tool.fetched(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOutsideOfTheModule(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := (cached{name: "tool"}).fetched(t.Context()); err == nil {
		t.Error("a cache was found")
	}
}

// Slow work is reported again and again, and never after its end.
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
