package redis

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/redistest"
)

const (
	appUser     = "app"
	appPassword = "redis-app-password"
)

// makeUser makes a user who has the rights that the page names.
func makeUser(t *testing.T, s *redistest.Server, rights ...any) (rawURL string) {
	t.Helper()
	args := append([]any{"ACL", "SETUSER", appUser, "reset", "on", ">" + appPassword}, rights...)
	if err := client(t, s.Addr()).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://" + appUser + ":" + appPassword + "@" + s.Addr()
}

// leastRights are those of the page.
var leastRights = []any{"~holdfast:*", "&holdfast:*", "+get", "+set", "+scan", "+time", "+exists", "+evalsha", "+eval", "+publish",
	"+subscribe", "+unsubscribe", "+ping", "+wait", "+info", "+hello", "+select"}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	at, admin := makeUser(t, s, leastRights...), client(t, s.Addr())
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker { return openAt(t, at) },
		Forget: func(ctx context.Context, name string) error {
			return admin.Del(ctx, defaultPrefix+lockrecord.Key(name)).Err()
		},
		Stall: func(context.Context, string) (func(), error) {
			return func() { _ = s.Resume() }, s.Pause()
		},
		Deny: func(ctx context.Context, _ string) (func(), error) {
			set := func(right string) error {
				return admin.Do(context.WithoutCancel(ctx), "ACL", "SETUSER", appUser, right).Err()
			}
			return func() {
				if err := set("~holdfast:*"); err != nil {
					t.Error(err)
				}
			}, set("resetkeys")
		},
		Damage: func(ctx context.Context, name string) (func(), error) {
			key := defaultPrefix + lockrecord.Key(name)
			whole, err := admin.Get(ctx, key).Result()
			if err == nil {
				err = admin.Set(ctx, key, whole[:len(whole)/2], 0).Err()
			}
			return func() { admin.Set(context.WithoutCancel(ctx), key, whole, 0) }, err
		},
		Secrets: []string{appPassword, redistest.Password},
		Without: []string{"FailOver"},
	})
}
