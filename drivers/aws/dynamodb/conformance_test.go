package dynamodb

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.Exit(code) }))
}

// configFor is a program's own configuration for a server at an address.
func configFor(endpoint string) aws.Config {
	return aws.Config{Region: dynamodbtest.Region, BaseEndpoint: &endpoint, Credentials: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: dynamodbtest.KeyID, SecretAccessKey: dynamodbtest.Secret,
				SessionToken: dynamodbtest.SessionToken}, nil
		})}
}

// open opens a Locker that the test closes. It races no writes, and sends nothing.
func open(t *testing.T, config aws.Config, opts ...Option) *Locker {
	t.Helper()
	return openRacing(t, config, append([]Option{onlyReads}, opts...)...)
}

// openRacing is open with the races of conditional writes, and with what Open does to the table.
func openRacing(t *testing.T, config aws.Config, opts ...Option) *Locker {
	t.Helper()
	l, err := New(t.Context(), config, dynamodbtest.Table, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func try(t *testing.T, l *Locker, name, owner string) (driver.Lease, error) {
	t.Helper()
	return l.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID(owner), Owner: "host-" + owner, TTL: time.Minute})
}

func acquire(t *testing.T, l *Locker, name, owner string) driver.Lease {
	t.Helper()
	lease, err := try(t, l, name, owner)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// suite is the conformance suite on a server in this process.
func suite(t *testing.T, faults func(cas.Store) cas.Store) lockertest.Config {
	t.Helper()
	server := dynamodbtest.Start(t)
	t.Cleanup(func() {
		if n := server.Requests("DeleteItem"); n != 0 {
			t.Errorf("%d items were deleted: their tokens are forgotten", n)
		}
	})
	key := func(name string) string { return "team/locks/" + lockrecord.Key(name) }
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openRacing(t, configFor(server.Endpoint()), WithPrefix("team/locks"), func(c *settings) { c.wrap, c.rounds = faults, 1 })
		},
		Forget: func(_ context.Context, name string) error {
			if server.Item(key(name)) == nil {
				return errors.New("there is no item")
			}
			server.SetItem(key(name), nil)
			return nil
		},
		Stall: func(_ context.Context, name string) (func(), error) { return server.Stall(key(name)), nil },
		Deny:  func(context.Context, string) (func(), error) { return server.Deny("*"), nil },
		Damage: func(_ context.Context, name string) (func(), error) {
			whole, cut := server.Item(key(name)), server.Item(key(name))
			if whole == nil {
				return nil, errors.New("there is no item")
			}
			record := *whole[attrRecord].S
			cut[attrRecord] = dynamodbtest.Text(record[:len(record)/2])
			server.SetItem(key(name), cut)
			return func() { server.SetItem(key(name), whole) }, nil
		},
		Secrets: []string{dynamodbtest.KeyID, dynamodbtest.Secret, dynamodbtest.SessionToken},
		Without: []string{"FailOver"}, // the server of the test loses nothing
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	lockertest.Run(t, suite(t, nil))
}

// The suite again, with answers that are lost.
func TestConformanceLostAnswers(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	var opened atomic.Uint64
	lockertest.Run(t, suite(t, func(s cas.Store) cas.Store {
		return castest.Faulty(t, s, castest.LostAnswers(opened.Add(1)))
	}))
}
