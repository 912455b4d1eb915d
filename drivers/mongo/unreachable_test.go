package mongo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/address"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/holdfast-go/holdfast/driver"
)

// The error begins with the cause and then says what to check. It does not list everything
// that the Go driver knows.
func TestUnreachableServersAreNamedByCause(t *testing.T) {
	for url, want := range map[string]string{
		"mongodb://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/app?replicaSet=rs0": "holdfast: connect to mongodb: no primary reachable (3 of 3 " +
			"members refused the connection); check the hosts and replicaSet=rs0",
		"mongodb://joe:hunter2@127.0.0.1:1/app": "holdfast: connect to mongodb: no primary reachable " +
			"(127.0.0.1:1 refused the connection); check the hosts",
		"mongodb://127.0.0.1:1,127.0.0.1:2/app?serverSelectionTimeoutMS=100&w=1": "holdfast: connect to mongodb: no primary reachable (2 of 2 " +
			"members refused the connection); check the hosts",
	} {
		err := openUnreachable(t, url, 500*time.Millisecond)
		if err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", url, err, want)
		}
		var failed *driver.OpError
		if !errors.As(err, &failed) || errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: an error of another kind: %v", url, err)
		}
	}
}

// openUnreachable returns the error of Open. On a busy machine a time limit can be over before all
// members have refused a connection. Then it tries again, with twice the time.
func openUnreachable(t *testing.T, url string, limit time.Duration) error {
	t.Helper()
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		l, err := Open(ctx, url)
		cancel()
		if err == nil {
			t.Fatalf("%s: opened %v", url, l)
		}
		inTime := strings.Contains(err.Error(), "refused") && !strings.Contains(err.Error(), "did not answer")
		if inTime || tries == 6 {
			return err
		}
		limit *= 2
	}
}

// An unknown host is reported as such.
func TestUnknownHost(t *testing.T) {
	unknown := &net.DNSError{Err: "no such host", Name: "nosuch.invalid", IsNotFound: true}
	server := func(host string, err error) description.Server {
		return description.Server{Addr: address.Address(host), LastError: err}
	}
	for want, servers := range map[string][]description.Server{
		"no primary reachable (nosuch.invalid:27017 failed: unknown host name); check the hosts": {server("nosuch.invalid:27017", unknown)},
		"no primary reachable (2 of 3 members failed: unknown host name, 1 of 3 members did not answer); check the hosts": {
			server("a:1", unknown), server("b:1", nil), server("c:1", fmt.Errorf("dial: %w", unknown))},
	} {
		err := unreachable(fmt.Errorf("ping: %w", topology.ServerSelectionError{Desc: description.Topology{Servers: servers}}))
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
