package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

// Options of a replica set. The zero value is three members without access
// control and quick elections.
type Options struct {
	// Members is how many members it has; 0 means 3.
	Members int
	// Auth turns access control on, with the user [AdminUser].
	Auth bool
	// Arbiter makes the last member an arbiter, which votes and has no data.
	Arbiter bool
	// ElectionTimeout is how long the others wait for a silent primary; 0 means
	// one second. MongoDB's own default is ten.
	ElectionTimeout time.Duration
	// TTLMonitor is how many seconds the TTL thread sleeps between its rounds; 0
	// means one. MongoDB's own default is 60.
	TTLMonitor int
	// NoChaining has every secondary follow the primary. One that follows a frozen
	// secondary falls behind with it, and no majority acknowledges a write.
	NoChaining bool
	// Args are further arguments for every mongod.
	Args []string
	// Env gives further variables for the environment of a member; nil for none.
	Env func(member int) []string
}

func (o Options) withDefaults() Options {
	if o.Members == 0 {
		o.Members = 3
	}
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = time.Second
	}
	if o.TTLMonitor == 0 {
		o.TTLMonitor = 1
	}
	return o
}

// The user of a replica set with access control; it may do everything.
const (
	AdminUser     = "admin"
	AdminPassword = "mongotest-admin-password"
)

const setName = "rs"

// ReplicaSet is a running replica set. Its methods are safe for concurrent use.
// Members are numbered from 0.
type ReplicaSet struct {
	*Set
	mu      sync.Mutex // guards the processes' state; held while they start and stop
	members []*process
}

// StartReplicaSet starts a replica set for this test alone and removes it at
// the end. It fails the test if that is impossible.
func StartReplicaSet(tb testing.TB, opts Options) *ReplicaSet {
	tb.Helper()
	rs, err := NewReplicaSet(tb.Context(), tb.TempDir(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := rs.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return rs
}

// NewReplicaSet starts a replica set with its data under dir. The caller removes
// it.
func NewReplicaSet(ctx context.Context, dir string, opts Options) (*ReplicaSet, error) {
	path, err := testservers.Mongod(ctx)
	if err != nil {
		return nil, err
	}
	return startReplicaSet(ctx, path, dir, opts)
}

func startReplicaSet(ctx context.Context, path, dir string, opts Options) (_ *ReplicaSet, err error) {
	opts = opts.withDefaults()
	rs := &ReplicaSet{Set: &Set{opts: opts}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a replica set: %w", err), rs.Remove())
		}
	}()
	args := append([]string{"--bind_ip", host}, opts.arguments()...)
	if opts.Auth {
		key := filepath.Join(dir, "keyfile")
		if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--auth", "--keyFile", key)
	}
	for i := range opts.Members {
		p, err := newProcess(ctx, path, dir, args...)
		if err != nil {
			return nil, err
		}
		rs.members = append(rs.members, p)
		rs.hosts = append(rs.hosts, p.addr())
		if opts.Env != nil {
			p.env = opts.Env(i)
		}
		if err := p.start(ctx); err != nil {
			return nil, err
		}
	}
	for _, p := range rs.members {
		if err := p.ready(ctx); err != nil {
			return nil, err
		}
	}
	return rs, rs.initiate(ctx)
}

// Kill ends a member as a crash does (SIGKILL).
func (rs *ReplicaSet) Kill(member int) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.members[member].kill()
}

// Restart starts a killed member again and waits until it takes connections.
func (rs *ReplicaSet) Restart(ctx context.Context, member int) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	p := rs.members[member]
	if p.running() {
		return nil
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	return p.ready(ctx)
}

// Pause freezes a member (SIGSTOP): its connections stay open and nothing
// answers.
func (rs *ReplicaSet) Pause(member int) error { return rs.signal(member, (*process).pause) }

// Resume ends a Pause.
func (rs *ReplicaSet) Resume(member int) error { return rs.signal(member, (*process).resume) }

func (rs *ReplicaSet) signal(member int, send func(*process) error) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if p := rs.members[member]; p.running() {
		return send(p)
	}
	return fmt.Errorf("member %d does not run", member)
}

// Remove ends the members and removes their data.
func (rs *ReplicaSet) Remove() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var errs []error
	for _, p := range rs.members {
		errs = append(errs, p.remove())
	}
	return errors.Join(errs...)
}
