package mongo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
)

// The cause comes first, then what to look at; not a dump of what the driver knows.
func TestUnreachableServersAreNamedByCause(t *testing.T) {
	for url, want := range map[string]string{
		"mongodb://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app?replicaSet=rs0":       "holdfast: check on mongodb: no primary reachable (3 of 3 members refused the connection); check the hosts and replicaSet=rs0",
		"mongodb://joe:hunter2@127.0.0.1:1/app":                                  "holdfast: check on mongodb: no primary reachable (127.0.0.1:1 refused the connection); check the hosts",
		"mongodb://127.0.0.1:1,127.0.0.1:2/app?serverSelectionTimeoutMS=100&w=1": "holdfast: check on mongodb: no primary reachable (2 of 2 members refused the connection); check the hosts",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		l, err := mongo.Open(ctx, url)
		if err == nil {
			t.Fatalf("%s: opened %v", url, l)
		}
		if err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", url, err, want)
		}
		var failed *holdfast.OpError
		if !errors.As(err, &failed) || errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: an error of another kind: %v", url, err)
		}
	}
}
