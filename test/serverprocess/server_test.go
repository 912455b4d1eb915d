package serverprocess

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// startOne starts a server for this test.
func startOne(t *testing.T) *Server {
	t.Helper()
	return StartFor(t, program("server"))
}

// answers reports whether the server at an address answers within a limit.
func answers(addr string, limit time.Duration) bool {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	_, err = conn.Read(make([]byte, 4))
	return err == nil
}

// stoppedInOrder reports whether the server ended in good order.
func (s *Server) stoppedInOrder() bool {
	_, err := os.Stat(filepath.Join(s.dir, "data", "stopped"))
	return err == nil
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	addr := s.Addr()
	for range 2 {
		if !answers(addr, 10*time.Second) {
			t.Fatal("the server does not answer")
		}
		for range 2 { // the second has nothing to do
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if answers(addr, time.Second) || s.stoppedInOrder() {
			t.Error("a killed server answers, or ended in good order")
		}
		if s.Pause() == nil || s.Resume() == nil {
			t.Error("a killed server was paused or resumed")
		}
		for range 2 { // the second has nothing to do
			if err := s.Restart(t.Context()); err != nil || s.Addr() != addr {
				t.Fatalf("after a restart at %s: %v", s.Addr(), err)
			}
		}
	}
	if !answers(addr, 10*time.Second) {
		t.Error("a restarted server does not answer")
	}
}

// The error of a server that does not start has the end of its log. Neither it nor the servers
// that were started with it are left.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Start(t.Context(), dir, program("server"), program("broken server"))
	if err == nil || !strings.Contains(err.Error(), "broken server") || !strings.Contains(err.Error(), "unknown option") {
		t.Errorf("the error is %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	missing := Config{Name: "nothing", Program: filepath.Join(dir, "nothing"), Args: program("").Args}
	if _, err := Start(t.Context(), dir, missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a program that does not exist: %v", err)
	}
}

// A server's port stays reserved, and its data there, until it is removed.
func TestRemove(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	port := flock.New(s.portLock.Path())
	defer port.Unlock() //nolint:errcheck // the test has ended
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if locked, err := port.TryLock(); locked || err != nil {
		t.Errorf("the port of a killed server was released: %v", err)
	}
	if _, err := os.Stat(s.dir); err != nil {
		t.Error(err)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if locked, err := port.TryLock(); !locked || err != nil {
		t.Errorf("the port of a removed server is not released: %v", err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a removed server: %v", err)
	}
}

// Servers that are started at the same time have ports of their own, also in other processes:
// the lock on the port's file is held until the server is removed.
func TestPortsAreReserved(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	locks := map[string]*flock.Flock{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			port, lock, err := reservePort(t.Context(), 40) // few, so that they do meet
			mu.Lock()
			defer mu.Unlock()
			if err != nil || locks[port] != nil {
				t.Errorf("port %s: %v", port, err)
			}
			locks[port] = lock
		})
	}
	wg.Wait()
	for port, lock := range locks {
		other := flock.New(lock.Path())
		if locked, err := other.TryLock(); locked || err != nil {
			t.Errorf("port %s is reserved twice: %v", port, err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		if locked, err := other.TryLock(); !locked || err != nil {
			t.Errorf("port %s is not released: %v", port, err)
		}
		_ = other.Unlock()
	}
}
