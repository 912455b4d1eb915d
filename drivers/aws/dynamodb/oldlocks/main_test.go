package oldlocks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.Exit(code) }))
}

// old is the table of the other programs.
const old = "lockTable"

// described is what DescribeTable answers for a table with a key: its partition key, and perhaps its sort key.
func described(key ...string) map[string]any {
	d := dynamodbtest.Description()
	var schema, types []any
	for i, name := range key {
		schema = append(schema, map[string]any{"AttributeName": name, "KeyType": []string{"HASH", "RANGE"}[i]})
		types = append(types, map[string]any{"AttributeName": name, "AttributeType": "S"})
	}
	d["KeySchema"], d["AttributeDefinitions"] = schema, types
	return d
}

// start starts a server with a table of the other programs.
func start(t *testing.T) *dynamodbtest.Server {
	t.Helper()
	server := dynamodbtest.Start(t)
	server.SetTable(old, described("key"))
	return server
}

// configFor is a program's own configuration for a server at an address.
func configFor(endpoint string) aws.Config {
	return aws.Config{Region: dynamodbtest.Region, BaseEndpoint: &endpoint, Credentials: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: dynamodbtest.KeyID, SecretAccessKey: dynamodbtest.Secret,
				SessionToken: dynamodbtest.SessionToken}, nil
		})}
}

// clock is an elapsed time that a test sets.
type clock struct {
	mu      sync.Mutex
	elapsed time.Duration
}

func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += d
}

// newLock opens the locks of a table, which the test closes.
func newLock(t *testing.T, config aws.Config, table Table, now func() time.Duration) *DynamoLock {
	t.Helper()
	l, err := NewDynamoLock(t.Context(), config, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if now != nil {
		l.elapsed = now
	}
	return l
}

// newOld returns an old program, whose leases last a second.
func newOld(t *testing.T, config aws.Config, now func() time.Duration) *oldClient {
	t.Helper()
	at, err := dynamo.New(t.Context(), config, old, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Calls.Close)
	return &oldClient{at: at, owner: "old-host", lease: time.Second, now: now}
}

func claim(name, digit string) migrating.Claim {
	return migrating.Claim{Name: name, Owner: "me", Proof: strings.Repeat(digit, 32), TTL: time.Second}
}

// fate is what becomes of a request.
type fate int

const (
	pass  fate = iota
	drop       // it does not arrive
	lose       // it is done, and its answer is lost
	twice      // it is done twice, and the second answer arrives
	late       // it arrives when the test says so; no answer does
)

// network is a transport that fails as the test says. It is for one request at a time.
type network struct {
	http.Transport
	before func(action string) fate // what happens before a request arrives
	held   []*http.Request          // late ones
	limits []time.Duration          // of all requests
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{before: func(string) fate { return pass }}
	t.Cleanup(n.CloseIdleConnections)
	return n
}

// config is that of a program in this network.
func (n *network) config(endpoint string) aws.Config {
	c := configFor(endpoint)
	c.HTTPClient = &http.Client{Transport: n}
	return c
}

var errNetwork = errors.New("the connection was reset")

// RoundTrip implements [http.RoundTripper].
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if deadline, ok := r.Context().Deadline(); ok {
		n.limits = append(n.limits, time.Until(deadline))
	} else {
		n.limits = append(n.limits, 0)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	again := func(ctx context.Context) *http.Request {
		copied := r.Clone(ctx)
		copied.Body = io.NopCloser(bytes.NewReader(body))
		return copied
	}
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	f := n.before(action)
	switch f {
	case drop:
		return nil, errNetwork
	case late:
		n.held = append(n.held, again(context.WithoutCancel(r.Context())))
		return nil, errNetwork
	case twice, lose:
		if err := n.send(again(r.Context())); f == lose || err != nil {
			return nil, errNetwork
		}
	case pass:
	}
	return n.Transport.RoundTrip(again(r.Context()))
}

// send makes a request whose answer nobody reads.
func (n *network) send(r *http.Request) error {
	answer, err := n.Transport.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// arrive lets a late request arrive.
func (n *network) arrive(i int) error {
	r := n.held[i]
	n.held = append(n.held[:i:i], n.held[i+1:]...)
	return n.send(r)
}

// byGo is the table of programs in Go.
var byGo = Table{Name: old, Client: Dynamolock}

func tableOf(java bool) Table {
	if java {
		return Table{Name: old, Client: Java}
	}
	return byGo
}
