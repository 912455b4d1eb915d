// Package mongoset makes running servers of MongoDB a replica set, for tests of users (holdfastcontainers) and of Holdfast
// itself (test/mongotest).
package mongoset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const initiateTimeout = 60 * time.Second

// Options of a replica set. The zero value is three members without access control and with
// fast elections.
type Options struct {
	// Members is the number of servers that whoever starts them starts; 0 means 3.
	Members int
	// Auth enables access control, with the user [AdminUser].
	Auth bool
	// Arbiter makes the last member an arbiter, which votes and has no data.
	Arbiter bool
	// ElectionTimeout is how long the other members wait for a primary that does not
	// answer; 0 means three seconds, so that a member may pause for a second on a busy
	// machine. MongoDB's own default is ten.
	ElectionTimeout time.Duration
	// TTLMonitor is how many seconds the thread that deletes expired documents sleeps
	// between its rounds; 0 means one. MongoDB's own default is 60.
	TTLMonitor int
	// NoChaining makes every secondary replicate from the primary. One that replicates
	// from a paused secondary falls behind with it, and no majority acknowledges a write.
	NoChaining bool
	// Args are further arguments for every mongod.
	Args []string
	// Env returns variables to add to a member's environment; it can be nil.
	Env func(member int) []string
}

func (o Options) withDefaults() Options {
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = 3 * time.Second
	}
	if o.TTLMonitor == 0 {
		o.TTLMonitor = 1
	}
	return o
}

// The user of a replica set with access control. It has all rights.
const (
	AdminUser     = "admin"
	AdminPassword = "mongotest-admin-password"
)

const setName = "rs"

// Set is a replica set as its clients see it: addresses and administrative commands. Members
// are numbered from 0. Its methods are safe for concurrent use.
type Set struct {
	opts  Options
	hosts []string
}

// Initiate makes running servers a replica set and waits until each member has its role. The
// servers are at these addresses and were started with [Arguments].
func Initiate(ctx context.Context, hosts []string, opts Options) (*Set, error) {
	s := &Set{opts: opts.withDefaults(), hosts: slices.Clone(hosts)}
	return s, s.initiate(ctx)
}

// At is a replica set that [Initiate] has made, whose members are at these addresses.
func At(hosts []string) *Set { return &Set{opts: Options{}.withDefaults(), hosts: slices.Clone(hosts)} }

// Arguments are the arguments of a mongod that can become a member.
func Arguments(opts Options) []string { return opts.withDefaults().arguments() }

func (o Options) arguments() []string {
	return append([]string{
		"--replSet", setName, "--oplogSize", "64",
		"--setParameter", "ttlMonitorSleepSecs=" + strconv.Itoa(o.TTLMonitor),
	}, append(Common(), o.Args...)...)
}

// Common are the arguments of every mongod.
func Common() []string {
	return []string{
		"--wiredTigerCacheSizeGB", "0.25",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "enableTestCommands=1", // for failCommand, which fault tests use
	}
}

// initiate makes the members a set and waits until each has its role. The first election is
// fast also with a long election timeout, which is set after it.
func (s *Set) initiate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, initiateTimeout)
	defer cancel()
	client, err := mongo.Connect(direct(s.hosts[0]))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	admin := client.Database("admin")
	for { // on a busy machine members may not reach each other although they accept connections
		err := admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: s.config(1, time.Second)}}).Err()
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
	if s.opts.Auth { // from this machine, the first user can be created without logging in
		if err := admin.RunCommand(ctx, bson.D{
			{Key: "createUser", Value: AdminUser}, {Key: "pwd", Value: AdminPassword}, {Key: "roles", Value: bson.A{"root"}},
		}).Err(); err != nil {
			return err
		}
	}
	for i, host := range s.hosts[1:] {
		field := "secondary"
		if s.arbiter(i + 1) {
			field = "arbiterOnly"
		}
		if err := onServer(ctx, direct(host), func(c *mongo.Client) error { return waitHello(ctx, c, field) }); err != nil {
			return err
		}
	}
	if s.opts.ElectionTimeout == time.Second {
		return nil
	}
	return s.lengthenElections(ctx)
}

// lengthenElections sets the election timeout that the options ask for. Until then it is a second: a machine that stops for
// longer than that makes the members elect another primary, so the command is repeated until a primary has carried it out.
func (s *Set) lengthenElections(ctx context.Context) error {
	for version := 2; ; version++ { // an attempt without an answer may have been carried out, so the next one needs a higher version
		err := s.Admin(ctx, bson.D{{Key: "replSetReconfig", Value: s.config(version, s.opts.ElectionTimeout)}})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Set) config(version int, electionTimeout time.Duration) bson.D {
	members := bson.A{}
	for i, host := range s.hosts {
		member := bson.D{{Key: "_id", Value: i}, {Key: "host", Value: host}}
		if s.arbiter(i) {
			member = append(member, bson.E{Key: "arbiterOnly", Value: true})
		}
		members = append(members, member)
	}
	return bson.D{
		{Key: "_id", Value: setName}, {Key: "version", Value: version}, {Key: "members", Value: members},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: electionTimeout.Milliseconds()},
			{Key: "heartbeatIntervalMillis", Value: min(electionTimeout/2, 2*time.Second).Milliseconds()},
			{Key: "heartbeatTimeoutSecs", Value: max(1, int(electionTimeout.Seconds()))},
			{Key: "chainingAllowed", Value: !s.opts.NoChaining},
		}},
	}
}

// URI is the connection string of the set, with user and password if it has access control.
func (s *Set) URI() string {
	u := url.URL{Scheme: "mongodb", Host: strings.Join(s.hosts, ","), Path: "/", RawQuery: "replicaSet=" + setName}
	if s.opts.Auth {
		u.User = url.UserPassword(AdminUser, AdminPassword)
	}
	return u.String()
}

// Hosts are the members' addresses, in order.
func (s *Set) Hosts() []string { return slices.Clone(s.hosts) }

func (s *Set) arbiter(member int) bool { return s.opts.Arbiter && member == len(s.hosts)-1 }

// Primary waits until there is a primary and returns its number.
func (s *Set) Primary(ctx context.Context) (int, error) {
	var hello struct{ Me string }
	err := onServer(ctx, s.clientOptions(), func(client *mongo.Client) error {
		return client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	})
	if err != nil {
		return 0, err
	}
	member := slices.Index(s.hosts, hello.Me)
	if member < 0 {
		return 0, fmt.Errorf("the primary %q is not a member", hello.Me)
	}
	return member, nil
}

// StepDown makes the primary step down in favor of another member.
func (s *Set) StepDown(ctx context.Context) error {
	const tries = 3 // it refuses while no other member has caught up, which a busy machine delays
	var err error
	for range tries {
		err = s.Admin(ctx, bson.D{{Key: "replSetStepDown", Value: 10}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}})
		if mongo.IsNetworkError(err) { // the primary may close its connections when it steps down
			return nil
		}
		var refused mongo.CommandError
		if !errors.As(err, &refused) || refused.Name != "ExceededTimeLimit" {
			return err
		}
	}
	return err
}

// Admin runs a command on the primary.
func (s *Set) Admin(ctx context.Context, cmd bson.D) error {
	return onServer(ctx, s.clientOptions(), func(client *mongo.Client) error {
		return client.Database("admin").RunCommand(ctx, cmd).Err()
	})
}

func (s *Set) clientOptions() *options.ClientOptions { return options.Client().ApplyURI(s.URI()) }

// direct are the options of a client that uses one member only.
func direct(addr string) *options.ClientOptions {
	return options.Client().SetHosts([]string{addr}).SetDirect(true)
}

// onServer calls fn with a client that is disconnected afterwards.
func onServer(ctx context.Context, opts *options.ClientOptions, fn func(*mongo.Client) error) error {
	client, err := mongo.Connect(opts)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return fn(client)
}

// waitHello waits until this field of a member's answer to "hello" is true.
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
			return fmt.Errorf("a member did not become %s: %w (%w)", field, ctx.Err(), err)
		case <-tick.C:
		}
	}
}
