package mongo

import (
	"context"
	"log/slog"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	driver.Register(driver.Description{
		Name:    "MongoDB",
		Schemes: []string{"mongodb", "mongodb+srv"},
		Examples: []driver.Example{
			{URL: "mongodb://h1,h2/app?replicaSet=rs0&collection=locks", Help: "MongoDB; mongodb+srv:// works too"},
		},
		Open:           func(ctx context.Context, rawURL string) (driver.Locker, error) { return Open(ctx, rawURL) },
		OpenForReading: openForReading,
		OpenForCheck:   openForCheck,
		OpenCounted:    openCounted,
		Apart:          apart,
		WriteGuarded:   writeGuarded,
		Requests:       "commands",
		Params:         params,
		Secrets:        []string{"tlsCertificateKeyFilePassword", "proxyPassword", "AWS_SESSION_TOKEN:"},
		Credentials: []driver.Credentials{{
			Variables: []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}, // AWS's SDKs fail if the ID is there alone
			Reads:     readsAWSVariables, When: "with authMechanism=MONGODB-AWS and no user in the URL",
		}},
		TestURL: "$HOLDFAST_TEST_MONGODB_URI",
	})
}

// openCounted counts the commands of a Locker, except those that monitor the servers.
func openCounted(ctx context.Context, rawURL string, sent func()) (driver.Locker, error) {
	monitor := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) { sent() }}
	l, err := Open(ctx, rawURL, WithLogger(slog.New(slog.DiscardHandler)), WithMonitor(monitor))
	if err != nil {
		return nil, err // a nil *Locker in the interface would not be nil
	}
	return l, nil
}

// readsAWSVariables reports whether the Go driver takes its credentials from the environment: the URL
// chooses AWS's mechanism and has no user.
func readsAWSVariables(rawURL string) bool {
	base, query, _ := strings.Cut(rawURL, "?")
	if strings.Contains(base, "@") {
		return false
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		mechanism, err := url.QueryUnescape(value)
		if strings.EqualFold(key, "authMechanism") && err == nil && strings.EqualFold(mechanism, "MONGODB-AWS") {
			return true
		}
	}
	return false
}
