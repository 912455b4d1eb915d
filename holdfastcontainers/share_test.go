package holdfastcontainers

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// A keeper whose test process was interrupted while it started goes on. The next process waits for its backend, or, if it could not
// be started, for its end.
func TestKeeperThatStarts(t *testing.T) {
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	host := backend.Addr().String()
	for what, then := range map[string]*state{
		"is ready": {Hosts: []string{host}},
		"fails":    {Error: "no such image"},
		"dies":     nil,
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			keeper := flock.New(filepath.Join(dir, "keeper.lock"))
			if locked, err := keeper.TryLock(); err != nil || !locked {
				t.Fatal(locked, err)
			}
			defer func() { _ = keeper.Close() }()
			done := make(chan error, 1)
			time.AfterFunc(200*time.Millisecond, func() { // so that others look before
				var err error
				if then != nil {
					err = then.write(dir)
				}
				if then == nil || then.Error != "" {
					err = errors.Join(err, keeper.Unlock())
				}
				done <- err
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			found, err := running(ctx, dir)
			var want []string
			if then != nil {
				want = then.Hosts
			}
			if err != nil || !slices.Equal(found.Hosts, want) {
				t.Errorf("running: %v, %v; want the hosts %v", found, err, want)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
