package nats

import (
	"context"
	"sync/atomic"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/natstest"
)

const (
	appUser     = "app"
	appPassword = "nats-app-password"
	// appRights are those that the page names, for a bucket that exists.
	appRights = `{user: app, password: "nats-app-password", permissions: { publish: ["$KV.locks.>", "$JS.API.STREAM.INFO.KV_locks",
		"$JS.API.STREAM.MSG.GET.KV_locks", "$JS.API.CONSUMER.CREATE.KV_locks"], subscribe: "_INBOX.>" }}`
	// noRights are those of the same user when a test takes them away.
	noRights = `{user: app, password: "nats-app-password", permissions: { publish: "nothing", subscribe: "_INBOX.>" }}`
	// jetStream has the data survive a crash of the machine.
	jetStream = "jetstream { sync_interval: always }"
)

// at is the URL of the bucket of the tests for a user.
func at(addr, user, password string) string {
	return "nats://" + user + ":" + password + "@" + addr + "/locks"
}

// startWithUsers starts a server with the bucket, and a user who has the rights that the page names.
func startWithUsers(t *testing.T) *natstest.Server {
	t.Helper()
	s := natstest.Start(t, natstest.Users(appRights), jetStream)
	openAt(t, s.URL()+"/locks")
	return s
}

// suite is the conformance suite on one server.
func suite(t *testing.T, s *natstest.Server, wrap func(cas.Store) cas.Store) lockertest.Config {
	t.Helper()
	conn := admin(t, s.URL())
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	subject := (&store{settings: settings{bucket: "locks"}}).subject
	publish := func(ctx context.Context, name string, data []byte, operation string) error {
		m := natsgo.NewMsg(subject(lockrecord.Key(name)))
		m.Data = data
		if operation != "" {
			m.Header.Set("KV-Operation", operation)
		}
		_, err := js.PublishMsg(m, natsgo.Context(ctx))
		return err
	}
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openAt(t, at(s.Addr(), appUser, appPassword), func(c *settings) { c.wrap = wrap })
		},
		Forget: func(ctx context.Context, name string) error { return publish(ctx, name, nil, "DEL") },
		Stall: func(context.Context, string) (func(), error) {
			return func() { _ = s.Resume() }, s.Pause()
		},
		Deny: func(ctx context.Context, _ string) (func(), error) {
			return func() {
				if err := s.Crash(ctx, natstest.Users(appRights), jetStream); err != nil {
					t.Error(err)
				}
			}, s.Crash(ctx, natstest.Users(noRights), jetStream)
		},
		Damage: func(ctx context.Context, name string) (func(), error) {
			m, err := js.GetLastMsg("KV_locks", subject(lockrecord.Key(name)), natsgo.Context(ctx))
			if err != nil {
				return nil, err
			}
			return func() {
				if err := publish(context.WithoutCancel(ctx), name, m.Data, ""); err != nil {
					t.Error(err)
				}
			}, publish(ctx, name, m.Data[:len(m.Data)/2], "")
		},
		FailOver: func(ctx context.Context) error { return s.Crash(ctx) },
		Secrets:  []string{appPassword, natstest.Password},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	lockertest.Run(t, suite(t, startWithUsers(t), nil))
}

// The suite again, over writes that lose their answers.
func TestConformanceWithLostAnswers(t *testing.T) {
	t.Parallel()
	var opened atomic.Uint64
	lockertest.Run(t, suite(t, startWithUsers(t), func(inner cas.Store) cas.Store {
		return castest.Faulty(t, inner, castest.LostAnswers(opened.Add(1)))
	}))
}
