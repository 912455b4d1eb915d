//go:build unix

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"   // for the workload's own tests
	_ "github.com/holdfast-go/holdfast/drivers/memory" // for the same tests: a lock that does not exclude other processes
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/test/history"
)

// register is a register that refuses a write with a lower token than it has seen. An error says
// why an outcome is unknown, or why a write had no effect.
type register interface {
	name() string
	read(ctx context.Context) (registerState, error)
	write(ctx context.Context, next registerState) (history.Outcome, error)
}

// backend is what a process reaches through the faulty network: the lock, and a register behind
// the driver's own fence.
type backend struct {
	client   *holdfast.Client
	register register // nil for backends without one
	close    func(ctx context.Context) error
}

// open connects to the backend. It retries until ctx ends.
func open(ctx context.Context, c Config, logger *slog.Logger) (*backend, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		b, err := openOnce(limited, c, logger)
		cancel()
		if err == nil {
			return b, nil
		}
		logger.Warn("open", slog.Any("error", err))
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func openOnce(ctx context.Context, c Config, logger *slog.Logger) (*backend, error) {
	opts := []holdfast.ClientOption{holdfast.WithTTL(c.TTL), holdfast.WithLogger(logger),
		holdfast.WithOwner(fmt.Sprintf("client %d", c.Client))}
	if c.Poll > 0 {
		opts = append(opts, holdfast.WithPollInterval(c.Poll))
	}
	if c.scheme() == "mongodb" {
		return openMongo(ctx, c, opts)
	}
	client, err := holdfast.Open(ctx, c.URL, opts...)
	if err != nil {
		return nil, err
	}
	b := &backend{client: client, close: client.Shutdown}
	if _, ok := client.Locker().(*postgres.Locker); ok {
		r, err := newPostgresRegister(ctx, c.URL)
		if err != nil {
			return nil, errors.Join(err, client.Shutdown(context.WithoutCancel(ctx)))
		}
		b.register = r
		b.close = func(ctx context.Context) error { r.pool.Close(); return client.Shutdown(ctx) }
	}
	if l, ok := client.Locker().(*azblob.Locker); ok {
		b.register = blobRegister{l.Blob(registerName)}
	}
	return b, nil
}

// registerName is not the name of a lock.
const registerName = "fenced-register"

// openMongo is like holdfast.Open, but connects to the servers through proxies.
func openMongo(ctx context.Context, c Config, opts []holdfast.ClientOption) (*backend, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	locks := cmp.Or(query.Get("collection"), mongo.DefaultCollection)
	query.Del("collection")
	u.RawQuery = query.Encode()
	connection, err := mongodriver.Connect(options.Client().ApplyURI(u.String()).SetDialer(addressMap(c.Dial)))
	if err != nil {
		return nil, err
	}
	db := connection.Database(strings.TrimPrefix(u.Path, "/"))
	b, err := newMongoBackend(ctx, db, locks, opts)
	if err != nil {
		_ = connection.Disconnect(context.WithoutCancel(ctx)) // the first error says more
		return nil, err
	}
	b.close = func(ctx context.Context) error {
		if err := b.client.Shutdown(ctx); err != nil {
			return err
		}
		return connection.Disconnect(ctx)
	}
	return b, nil
}

func newMongoBackend(ctx context.Context, db *mongodriver.Database, locks string, opts []holdfast.ClientOption) (*backend, error) {
	registers, err := newMongoRegister(ctx, db)
	if err != nil {
		return nil, err
	}
	locker, err := mongo.New(ctx, db.Collection(locks))
	if err != nil {
		return nil, err
	}
	client, err := holdfast.New(locker, opts...)
	if err != nil {
		_ = locker.Close(ctx) // the first error says more
		return nil, err
	}
	return &backend{client: client, register: registers}, nil
}

// addressMap is a dialer that replaces addresses.
type addressMap map[string]string

// DialContext implements the dialer of the MongoDB driver.
func (d addressMap) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if other, ok := d[address]; ok {
		address = other
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
