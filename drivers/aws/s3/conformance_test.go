package s3

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
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.Exit(code) }))
}

// configFor is a program's own configuration for a server at an address.
func configFor(endpoint string) aws.Config {
	return aws.Config{Region: s3test.Region, BaseEndpoint: &endpoint, Credentials: aws.CredentialsProviderFunc(
		func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3test.KeyID, SecretAccessKey: s3test.Secret, SessionToken: s3test.SessionToken}, nil
		})}
}

// open opens a Locker that the test closes. It races no writes.
func open(t *testing.T, config aws.Config, opts ...Option) *Locker {
	t.Helper()
	return openRacing(t, config, append([]Option{onlyReads}, opts...)...)
}

// openRacing is open with the races of conditional writes.
func openRacing(t *testing.T, config aws.Config, opts ...Option) *Locker {
	t.Helper()
	l, err := New(t.Context(), config, s3test.Bucket, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

// fixed returns a Locker on a server whose clock the test moves, with the process's elapsed clock.
func fixed(t *testing.T, opts ...Option) (*Locker, *s3test.Server, *locktest.Clock) {
	t.Helper()
	server, clock := s3test.Start(t), locktest.NewClock()
	server.SetClock(clock.Now)
	began := clock.Now()
	elapsed := func(c *settings) { c.elapsed = func() time.Duration { return clock.Now().Sub(began) } }
	return open(t, configFor(server.Endpoint()), append(opts, elapsed)...), server, clock
}

func try(t *testing.T, l *Locker, name, owner string, ttl time.Duration) (driver.Lease, error) {
	t.Helper()
	return l.TryAcquire(t.Context(), driver.Request{Name: name, ID: driver.NewLeaseID(owner), Owner: "host-" + owner, TTL: ttl})
}

func acquire(t *testing.T, l *Locker, name, owner string, ttl time.Duration) driver.Lease {
	t.Helper()
	lease, err := try(t, l, name, owner, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// suite is the conformance suite on a server whose clock the test moves.
func suite(t *testing.T, faults func(cas.Store) cas.Store) lockertest.Config {
	t.Helper()
	server, clock := s3test.Start(t), locktest.NewClock()
	server.SetClock(clock.Now)
	began := clock.Now()
	t.Cleanup(func() {
		if n := server.Requests("DeleteObject"); n != 0 {
			t.Errorf("%d objects were deleted: their tokens are forgotten", n)
		}
	})
	key := func(name string) string { return "team/locks/" + lockrecord.Key(name) }
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openRacing(t, configFor(server.Endpoint()), WithPrefix("team/locks"), func(c *settings) {
				c.elapsed = func() time.Duration { return clock.Now().Sub(began) }
				c.wrap, c.rounds = faults, 1
			})
		},
		Advance:   clock.Advance,
		ClockStep: httpstore.MaxDateAge,
		Forget: func(_ context.Context, name string) error {
			if server.Object(key(name)) == nil {
				return errors.New("there is no object")
			}
			server.SetObject(key(name), nil)
			return nil
		},
		Stall: func(_ context.Context, name string) (func(), error) { return server.Stall(key(name)), nil },
		Deny:  func(context.Context, string) (func(), error) { return server.Deny("*"), nil },
		Damage: func(_ context.Context, name string) (func(), error) {
			record := server.Object(key(name))
			if record == nil {
				return nil, errors.New("there is no object")
			}
			server.SetObject(key(name), record[:len(record)/2])
			return func() { server.SetObject(key(name), record) }, nil
		},
		Secrets: []string{s3test.KeyID, s3test.Secret, s3test.SessionToken},
		Without: []string{"FailOver"}, // the server of the test loses nothing
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	lockertest.Run(t, suite(t, nil))
}

// The suite again, with answers that are lost.
func TestConformanceLostAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip(`runs the suite a second time: "make verify" does`)
	}
	t.Parallel()
	var opened atomic.Uint64
	lockertest.Run(t, suite(t, func(s cas.Store) cas.Store {
		return castest.Faulty(t, s, castest.LostAnswers(opened.Add(1)))
	}))
}
