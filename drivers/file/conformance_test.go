package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
	"github.com/holdfast-go/holdfast/lockertest"
)

// fakeClock is a clock that a test sets.
type fakeClock struct {
	mu  sync.Mutex
	now lockstate.Moment
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: lockstate.Moment{Elapsed: time.Hour, Wall: time.Now().UTC()}}
}

func (d *fakeClock) clock() clock {
	return clock{now: d.read, boot: "boot 1", machine: "machine 1"}
}

func (d *fakeClock) read() (lockstate.Moment, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, nil
}

func (d *fakeClock) advance(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.Elapsed += by
	d.now.Wall = d.now.Wall.Add(by)
}

func (d *fakeClock) setWall(to time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.Wall = to
}

// stalls makes the disk hang when a lock's files are opened, or refuse to open them.
type stalls struct {
	mu     sync.Mutex
	stems  map[string]chan struct{}
	denied string // a stem
}

func (s *stalls) open(ctx context.Context, path string, flag int) (*os.File, error) {
	base, _, _ := strings.Cut(filepath.Base(path), ".")
	s.mu.Lock()
	resumed, denied := s.stems[base], base != "" && s.denied == base
	s.mu.Unlock()
	if denied {
		return nil, errNoRight
	}
	if resumed != nil {
		<-resumed
	}
	return openFile(ctx, path, flag)
}

func (s *stalls) stall(_ context.Context, name string) (resume func(), err error) {
	resumed := make(chan struct{})
	s.set(name, resumed)
	return func() {
		s.set(name, nil)
		close(resumed)
	}, nil
}

func (s *stalls) set(name string, resumed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stems == nil {
		s.stems = map[string]chan struct{}{}
	}
	s.stems[baseOf(name)] = resumed
}

// baseOf is what the names of a lock's files begin with.
func baseOf(name string) string {
	base, _, _ := strings.Cut(stem(name), ".")
	return base
}

func (s *stalls) deny(_ context.Context, name string) (allow func(), err error) {
	set := func(base string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.denied = base
	}
	set(baseOf(name))
	return func() { set("") }, nil
}

// testCallLimit is long enough for a busy machine. The clauses with a disk that hangs wait for it, at the same time.
const testCallLimit = 30 * time.Second

func config(dir string, open func() (*Locker, error)) lockertest.Config {
	var s stalls
	return lockertest.Config{
		Slack: time.Minute,
		New: func(t *testing.T) driver.Locker {
			t.Helper()
			l, err := open()
			if err != nil {
				t.Fatal(err)
			}
			l.callLimit = testCallLimit
			l.disk.open = s.open
			t.Cleanup(func() {
				if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			return l
		},
		Forget: func(_ context.Context, name string) error {
			return os.Remove(filepath.Join(dir, stem(name)+".json"))
		},
		Stall: s.stall,
		Deny:  s.deny, // as another user, and root may enter every folder
		Damage: func(_ context.Context, name string) (func(), error) {
			path := filepath.Join(dir, stem(name)+".json")
			whole, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, whole[:len(whole)/2], 0o600)
			}
			return func() { _ = os.WriteFile(path, whole, 0o600) }, err // what fails here, the clause finds
		},
		Without: []string{"FailOver"}, // when the machine crashes, all holders end with it
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("system clock", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cfg := config(dir, func() (*Locker, error) { return New(dir) })
		cfg.TTL = 500 * time.Millisecond
		lockertest.Run(t, cfg)
	})
	t.Run("settable clock", func(t *testing.T) {
		t.Parallel()
		dir, d := t.TempDir(), newFakeClock()
		cfg := config(dir, func() (*Locker, error) { return newLocker(dir, d.clock()) })
		cfg.Advance = d.advance
		cfg.Stall, cfg.Without = nil, append(cfg.Without, "Stall") // once is enough
		lockertest.Run(t, cfg)
	})
}
