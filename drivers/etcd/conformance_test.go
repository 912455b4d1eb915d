package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/etcdtest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const (
	appUser     = "app"
	appPassword = "etcd-app-password"
)

// at is the URL of a member for a user.
func at(s *etcdtest.Server, user, password string) string {
	return strings.Replace(s.URL(), "://", "://"+user+":"+password+"@", 1)
}

// startWithLogin starts a cluster with authentication, whose users may use the default prefix.
func startWithLogin(t *testing.T, args ...string) *etcdtest.Server {
	t.Helper()
	s := etcdtest.Start(t, args...)
	users := map[string]string{appUser: appPassword, etcdtest.Reader: appPassword}
	if err := s.EnableLogin(t.Context(), defaultPrefix+"/", users); err != nil {
		t.Fatal(err)
	}
	return s
}

func lockKey(name string) []byte { return []byte(defaultPrefix + "/" + lockrecord.Key(name)) }

// valueAt reads a key as root.
func valueAt(ctx context.Context, s *etcdtest.Server, key []byte) ([]byte, error) {
	answer, err := s.AskAsRoot(ctx, "/v3/kv/range", map[string]any{"key": key})
	var a struct{ KVs []struct{ Value []byte } }
	if err == nil {
		err = json.Unmarshal(answer, &a)
	}
	if err == nil && len(a.KVs) != 1 {
		err = errors.New("there is no value")
	}
	if err != nil {
		return nil, err
	}
	return a.KVs[0].Value, nil
}

func putAt(ctx context.Context, s *etcdtest.Server, key, value []byte) error {
	_, err := s.AskAsRoot(ctx, "/v3/kv/put", map[string]any{"key": key, "value": value})
	return err
}

// suite is the conformance suite on a cluster of one member, for a user who has the rights that the page names.
func suite(t *testing.T, s *etcdtest.Server) lockertest.Config {
	t.Helper()
	return lockertest.Config{
		New: func(t *testing.T) driver.Locker { return openAt(t, at(s, appUser, appPassword)) },
		Forget: func(ctx context.Context, name string) error {
			_, err := s.AskAsRoot(ctx, "/v3/kv/deleterange", map[string]any{"key": lockKey(name)})
			return err
		},
		Stall: func(context.Context, string) (func(), error) {
			return func() { _ = s.Resume() }, s.Pause()
		},
		Deny: func(ctx context.Context, _ string) (func(), error) {
			return func() {
				if err := s.SetRight(context.WithoutCancel(ctx), defaultPrefix+"/", true); err != nil {
					t.Error(err)
				}
			}, s.SetRight(ctx, defaultPrefix+"/", false)
		},
		Damage: func(ctx context.Context, name string) (func(), error) {
			whole, err := valueAt(ctx, s, lockKey(name))
			if err == nil {
				err = putAt(ctx, s, lockKey(name), whole[:len(whole)/2])
			}
			return func() {
				if err := putAt(context.WithoutCancel(ctx), s, lockKey(name), whole); err != nil {
					t.Error(err)
				}
			}, err
		},
		FailOver: s.Crash,
		Secrets:  []string{appPassword, etcdtest.RootPassword},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	lockertest.Run(t, suite(t, startWithLogin(t)))
}

// The suite again, over writes that lose their answers.
func TestConformanceWithLostAnswers(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	s := startWithLogin(t)
	config := suite(t, s)
	var opened atomic.Uint64
	config.New = func(t *testing.T) driver.Locker {
		return openAt(t, at(s, appUser, appPassword), func(c *settings) {
			c.wrap = func(inner cas.Store) cas.Store { return castest.Faulty(t, inner, castest.LostAnswers(opened.Add(1))) }
		})
	}
	lockertest.Run(t, config)
}

// The suite on three members, of which the leader is killed.
func TestConformanceOfACluster(t *testing.T) {
	serverprocess.Long(t, "runs the whole suite once more")
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker { return openAt(t, etcdtest.URLOf(all...)) },
		FailOver: func(ctx context.Context) error {
			return leaderOf(t, all).Crash(ctx)
		},
		Without: []string{"Damage", "Deny", "Forget", "Stall"},
	})
}

// leaderOf returns the member that leads.
func leaderOf(t *testing.T, all []*etcdtest.Server) *etcdtest.Server {
	t.Helper()
	s := storeAt(t, etcdtest.URLOf(all...))
	members, _ := s.members.order()
	for i, m := range members {
		var now status
		err := s.askMember(t.Context(), m, s.timeout, call{method: methodStatus, body: nothing{}}, &now)
		if err == nil && now.Leader == now.Header.MemberID {
			return all[i]
		}
	}
	t.Fatal("the cluster has no leader")
	return nil
}
