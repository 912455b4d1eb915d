package mongotest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// Options are those of any set.
type Options = mongoset.Options

// The user of a replica set with access control. It has all rights.
const (
	AdminUser     = mongoset.AdminUser
	AdminPassword = mongoset.AdminPassword
)

// ReplicaSet is a running replica set whose members are processes of this machine. Its methods
// are safe for concurrent use. Members are numbered from 0.
type ReplicaSet struct {
	*mongoset.Set
	members []*serverprocess.Server
}

// StartReplicaSet starts a replica set for this test alone and removes it at the end. It fails
// the test if that is not possible.
func StartReplicaSet(tb testing.TB, opts Options) *ReplicaSet {
	tb.Helper()
	rs, err := NewReplicaSet(tb.Context(), tb.TempDir(), opts)
	return serverprocess.Owned(tb, rs, err)
}

// NewReplicaSet starts a replica set with its data under dir. The caller removes it.
func NewReplicaSet(ctx context.Context, dir string, opts Options) (_ *ReplicaSet, err error) {
	path, err := testservers.Mongod.Path(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start a replica set: %w", err)
		}
	}()
	args := mongoset.Arguments(opts)
	if opts.Auth {
		key := filepath.Join(dir, "keyfile")
		if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--auth", "--keyFile", key)
	}
	configs := make([]serverprocess.Config, cmp.Or(opts.Members, 3))
	for i := range configs {
		var env []string
		if opts.Env != nil {
			env = opts.Env(i)
		}
		configs[i] = mongod(path, env, args...)
	}
	members, err := serverprocess.Start(ctx, dir, configs...)
	if err != nil {
		return nil, err
	}
	rs := &ReplicaSet{members: members}
	var hosts []string
	for _, m := range members {
		hosts = append(hosts, m.Addr())
	}
	if rs.Set, err = mongoset.Initiate(ctx, hosts, opts); err != nil {
		return nil, errors.Join(err, rs.Remove())
	}
	return rs, nil
}

// mongod describes a mongod with these arguments and variables.
func mongod(path string, env []string, args ...string) serverprocess.Config {
	return serverprocess.Config{Name: "mongod", Program: path, Env: env, Args: func(port, data string) []string {
		return append([]string{"--bind_ip", serverprocess.Host, "--port", port, "--dbpath", data}, args...)
	}}
}

// PIDs are the numbers of the members' processes, in order.
func (rs *ReplicaSet) PIDs() []int {
	var out []int
	for _, m := range rs.members {
		out = append(out, m.PID())
	}
	return out
}

// Members are the members' processes, in order.
func (rs *ReplicaSet) Members() []*serverprocess.Server { return slices.Clone(rs.members) }

// Kill ends a member as a crash does (SIGKILL).
func (rs *ReplicaSet) Kill(member int) error { return rs.members[member].Kill() }

// Restart starts a killed member again and waits until it accepts connections.
func (rs *ReplicaSet) Restart(ctx context.Context, member int) error {
	return rs.members[member].Restart(ctx)
}

// Pause freezes a member (SIGSTOP): its connections stay open and nothing answers.
func (rs *ReplicaSet) Pause(member int) error { return rs.members[member].Pause() }

// Resume ends a Pause.
func (rs *ReplicaSet) Resume(member int) error { return rs.members[member].Resume() }

// Remove ends the members and deletes their data.
func (rs *ReplicaSet) Remove() error { return serverprocess.Remove(rs.members) }
