package serverprocess

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// tests is a *testing.M whose tests are a function.
type tests func() int

func (f tests) Run() int { return f() }

// removal is a server that can be removed.
type removal func() error

func (f removal) Remove() error { return f() }

// A shared server is started once, in a folder of its own, and removed after the tests.
func TestShared(t *testing.T) {
	outer := shared.dir
	defer func() { shared.dir = outer }()
	var folder string
	var starts, stops atomic.Int32
	server := Shared(func(_ context.Context, dir string) (*removal, error) {
		starts.Add(1)
		folder = dir
		one := removal(func() error { stops.Add(1); return nil })
		return &one, nil
	})
	var first atomic.Pointer[removal]
	code := Run(tests(func() int {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got := server(t); !first.CompareAndSwap(nil, got) && first.Load() != got {
					t.Error("the tests have different servers")
				}
			})
		}
		wg.Wait()
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 || stops.Load() != 0 {
			t.Errorf("during the tests: %v, %v, stopped %d times", left, err, stops.Load())
		}
		return 3
	}))
	if _, err := os.Stat(folder); code != 3 || starts.Load() != 1 || stops.Load() != 1 || err == nil {
		t.Errorf("code %d, started %d times, stopped %d times, the folder: %v", code, starts.Load(), stops.Load(), err)
	}
}

// A server that cannot be stopped fails the run.
func TestSharedStopFails(t *testing.T) {
	outer := shared.dir
	defer func() { shared.dir = outer }()
	server := Shared(func(context.Context, string) (removal, error) {
		return func() error { return errors.New("does not end") }, nil
	})
	if code := Run(tests(func() int { server(t); return 0 })); code != 1 {
		t.Errorf("the exit code is %d", code)
	}
}
