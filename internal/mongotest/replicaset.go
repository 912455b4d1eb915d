package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Options of a replica set. The zero value is three members without access
// control and quick elections.
type Options struct {
	// Members is how many members it has; 0 means 3.
	Members int
	// Auth turns access control on, with the user [AdminUser].
	Auth bool
	// ElectionTimeout is how long the others wait for a silent primary; 0 means
	// one second. MongoDB's own default is ten.
	ElectionTimeout time.Duration
	// Args are further arguments for every mongod.
	Args []string
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
	opts    Options
	dir     string
	mu      sync.Mutex // guards the processes' state; held while they start and stop
	members []*process
}

// StartReplicaSet starts a replica set for this test alone and removes it at
// the end. It fails the test if that is impossible.
func StartReplicaSet(tb testing.TB, opts Options) *ReplicaSet {
	tb.Helper()
	path, err := binary(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	rs, err := startReplicaSet(tb.Context(), path, tb.TempDir(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := rs.remove(); err != nil {
			tb.Error(err)
		}
	})
	return rs
}

func startReplicaSet(ctx context.Context, path, dir string, opts Options) (_ *ReplicaSet, err error) {
	if opts.Members == 0 {
		opts.Members = 3
	}
	if opts.ElectionTimeout == 0 {
		opts.ElectionTimeout = time.Second
	}
	rs := &ReplicaSet{opts: opts, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a replica set: %w", err), rs.remove())
		}
	}()
	args := append([]string{"--replSet", setName, "--oplogSize", "64"}, opts.Args...)
	if opts.Auth {
		key := filepath.Join(dir, "keyfile")
		if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--auth", "--keyFile", key)
	}
	for range opts.Members {
		p, err := newProcess(ctx, path, dir, args...)
		if err != nil {
			return nil, err
		}
		rs.members = append(rs.members, p)
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

// initiate makes the members a set and waits until each has its place in it.
// The first election is quick whatever the election timeout is to be.
func (rs *ReplicaSet) initiate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := mongo.Connect(direct(rs.members[0].addr()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	admin := client.Database("admin")
	for { // on a busy machine members are not reachable at once, though they take connections
		err := admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: rs.config(1, time.Second)}}).Err()
		if err == nil {
			break
		}
		var answer mongo.CommandError
		if !errors.As(err, &answer) || answer.Name != "NodeNotFound" {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
	if err := waitHello(ctx, client, "isWritablePrimary"); err != nil {
		return err
	}
	if rs.opts.Auth { // allowed without a user from this machine, until there is one
		if err := admin.RunCommand(ctx, bson.D{
			{Key: "createUser", Value: AdminUser}, {Key: "pwd", Value: AdminPassword}, {Key: "roles", Value: bson.A{"root"}},
		}).Err(); err != nil {
			return err
		}
	}
	for _, p := range rs.members[1:] {
		if err := onDirect(ctx, p.addr(), func(c *mongo.Client) error { return waitHello(ctx, c, "secondary") }); err != nil {
			return err
		}
	}
	if rs.opts.ElectionTimeout == time.Second {
		return nil
	}
	return rs.admin(ctx, bson.D{{Key: "replSetReconfig", Value: rs.config(2, rs.opts.ElectionTimeout)}})
}

func (rs *ReplicaSet) config(version int, electionTimeout time.Duration) bson.D {
	members := bson.A{}
	for i, p := range rs.members {
		member := bson.D{{Key: "_id", Value: i}, {Key: "host", Value: p.addr()}}
		members = append(members, member)
	}
	return bson.D{
		{Key: "_id", Value: setName}, {Key: "version", Value: version}, {Key: "members", Value: members},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: electionTimeout.Milliseconds()},
			{Key: "heartbeatIntervalMillis", Value: min(electionTimeout/2, 2*time.Second).Milliseconds()},
			{Key: "heartbeatTimeoutSecs", Value: max(1, int(electionTimeout.Seconds()))},
		}},
	}
}

// URI is the connection string of the set, with user and password if it has
// access control.
func (rs *ReplicaSet) URI() string {
	u := url.URL{Scheme: "mongodb", Host: strings.Join(rs.Hosts(), ","), Path: "/", RawQuery: "replicaSet=" + setName}
	if rs.opts.Auth {
		u.User = url.UserPassword(AdminUser, AdminPassword)
	}
	return u.String()
}

// Hosts are the members' addresses, in order.
func (rs *ReplicaSet) Hosts() []string {
	hosts := make([]string, len(rs.members))
	for i, p := range rs.members {
		hosts[i] = p.addr()
	}
	return hosts
}

// Primary is the number of the member that is primary, once there is one.
func (rs *ReplicaSet) Primary(ctx context.Context) (int, error) {
	var found int
	err := rs.onPrimary(ctx, func(client *mongo.Client) error {
		var hello struct{ Me string }
		if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
			return err
		}
		for i, host := range rs.Hosts() {
			if host == hello.Me {
				found = i
				return nil
			}
		}
		return fmt.Errorf("the primary %q is no member", hello.Me)
	})
	return found, err
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

// StepDown has the primary give way to another member.
func (rs *ReplicaSet) StepDown(ctx context.Context) error {
	err := rs.admin(ctx, bson.D{{Key: "replSetStepDown", Value: 10}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}})
	if mongo.IsNetworkError(err) { // the primary may close its connections when it steps down
		return nil
	}
	return err
}

// admin runs a command on the primary.
func (rs *ReplicaSet) admin(ctx context.Context, cmd bson.D) error {
	return rs.onPrimary(ctx, func(client *mongo.Client) error {
		return client.Database("admin").RunCommand(ctx, cmd).Err()
	})
}

func (rs *ReplicaSet) onPrimary(ctx context.Context, fn func(*mongo.Client) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI(rs.URI()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return fn(client)
}

func (rs *ReplicaSet) remove() error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var errs []error
	for _, p := range rs.members {
		errs = append(errs, p.remove())
	}
	return errors.Join(errs...)
}

func direct(addr string) *options.ClientOptions {
	return options.Client().SetHosts([]string{addr}).SetDirect(true)
}

func onDirect(ctx context.Context, addr string, fn func(*mongo.Client) error) error {
	client, err := mongo.Connect(direct(addr))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return fn(client)
}

// waitHello waits until a member says that it is what the field names.
func waitHello(ctx context.Context, client *mongo.Client, field string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		raw, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
		if err == nil && bytes.Equal(raw.Lookup(field).Value, []byte{1}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a member does not become %s: %w (%w)", field, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
