package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// motoConfig is a program's own configuration for a server, in a region that exists.
func motoConfig(endpoint string) aws.Config {
	config := configFor(endpoint)
	config.Region = "eu-central-1"
	return config
}

// edit writes the record of an item without a condition, as a person may.
func edit(ctx context.Context, s *store, key, record string) error {
	i := s.key(key)
	i[attrRecord] = attribute{S: record}
	return s.Ask(ctx, "PutItem", struct {
		TableName string
		Item      item
	}{s.Name, i}, &struct{}{})
}

// The conformance suite on another implementation of the protocol.
func TestConformanceMoto(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.StartMoto(t)
	editor := openRacing(t, motoConfig(server.Endpoint()), WithPrefix("team")).store
	lockertest.Run(t, lockertest.Config{
		New: func(t *testing.T) driver.Locker {
			return openRacing(t, motoConfig(server.Endpoint()), WithPrefix("team"), func(c *settings) { c.rounds = 1 })
		},
		Forget: func(ctx context.Context, name string) error {
			return editor.remove(ctx, editor.key(lockrecord.Key(name)))
		},
		Stall: func(context.Context, string) (func(), error) {
			return func() {
				if err := server.Resume(); err != nil {
					t.Error(err)
				}
			}, server.Pause()
		},
		Damage: func(ctx context.Context, name string) (func(), error) {
			key := lockrecord.Key(name)
			v, err := editor.Get(ctx, key)
			if err != nil {
				return nil, err
			}
			return func() {
				if err := edit(context.WithoutCancel(ctx), editor, key, string(v.Data)); err != nil {
					t.Error(err)
				}
			}, edit(ctx, editor, key, string(v.Data[:len(v.Data)/2]))
		},
		Secrets: []string{dynamodbtest.KeyID, dynamodbtest.Secret, dynamodbtest.SessionToken},
		Without: []string{"Deny", "FailOver"}, // it accepts every credential, and keeps nothing
	})
}

// The fake server answers as another implementation does where the driver looks.
func TestMoto(t *testing.T) {
	t.Parallel()
	config := motoConfig(dynamodbtest.StartMoto(t).Endpoint())
	absent := open(t, config)
	if missing, err := absent.MissingStore(t.Context()); err != nil || missing == "" {
		t.Errorf("without a table: %q, %v", missing, err)
	}
	if r, err := absent.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Errorf("without a table: %+v, %v", r, err)
	}
	l := openRacing(t, config, WithPrefix("team"))
	s, ctx := l.store, t.Context()
	first := acquire(t, l, "Jobs/nightly %~é", "a")
	first, err := l.Renew(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, lockrecord.Key(first.Name), []byte("x"), "")
	var refused *cas.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(string(refused.Present.Data), "host-a") {
		t.Errorf("a refused write: %v", err)
	}
	if _, err := s.Put(ctx, "absent", []byte("x"), versionOf("y")); !errors.Is(err, cas.ErrConflict) || errors.As(err, &refused) {
		t.Errorf("a write of what is missing: %v", err)
	}
	if before, err := writeGuarded(ctx, l, first, "1"); err != nil || before != "" {
		t.Errorf("a guarded write: %q, %v", before, err)
	}
	if err := l.Release(ctx, first); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, l, first.Name, "b")
	if _, err := writeGuarded(ctx, l, first, "late"); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a late write: %v", err)
	}
	if before, err := writeGuarded(ctx, l, second, "2"); err != nil || before != "1" {
		t.Errorf("a guarded write: %q, %v", before, err)
	}
	var names []string
	for i := range 130 {
		names = append(names, fmt.Sprintf("many-%03d", i))
		if _, err := s.Put(ctx, names[i], []byte(names[i]), ""); err != nil {
			t.Fatal(err)
		}
	}
	values, err := s.GetBatch(ctx, append(names, "absent"))
	if err != nil || string(values[129].Data) != names[129] || values[130].Version != "" {
		t.Errorf("a batch: %v", err)
	}
	items, _, err := s.List(ctx, "many-", "")
	if err != nil || len(items) != len(names) {
		t.Errorf("a list: %d items, %v", len(items), err)
	}
	found := findings(t, l)
	for _, want := range []string{"table: ok", "rights: ok", "capacity: ok: each request", "time to live: ok", "clocks: ok",
		"store: ok", "conditional writes: ok"} {
		if !strings.Contains(found, want) {
			t.Errorf("doctor found\n%s, want %q", found, want)
		}
	}
	if err := s.Ask(ctx, "UpdateTimeToLive", map[string]any{"TableName": s.Name, "TimeToLiveSpecification": map[string]any{
		"AttributeName": attrToken, "Enabled": true}}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if found := findings(t, l); !strings.Contains(found, "time to live: doubtful") {
		t.Errorf("doctor found\n%s", found)
	}
	other := map[string]any{"TableName": "other", "BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": []any{map[string]any{"AttributeName": "id", "AttributeType": "S"}},
		"KeySchema":            []any{map[string]any{"AttributeName": "id", "KeyType": "HASH"}}}
	if err := s.Ask(ctx, "CreateTable", other, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(ctx, config, "other"); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "has another key") {
		t.Errorf("a table of others: %v", err)
	}
	long := "x" + strings.Repeat("y", 400<<10)
	if _, err := s.Put(ctx, "long", []byte(long), ""); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a record that is too long: %v", err)
	}
}

// Eight clients on one lock, through a network that loses and doubles: at most one holds it at a time, and tokens rise.
func TestMotoContention(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, dynamodbtest.StartMoto(t).Addr())
	config := motoConfig("http://" + proxy.Addr())
	openRacing(t, config, func(c *settings) { c.rounds = 1 }) // makes the table
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var mu sync.Mutex
	const ttl = 4 * time.Second
	holder, last, grants := "", uint64(0), 0
	var clients sync.WaitGroup
	for i := range 8 {
		l, name := open(t, config), fmt.Sprintf("client-%d", i)
		clients.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				id := driver.NewLeaseID(fmt.Sprint(name, began.UnixNano()))
				lease, err := l.TryAcquire(ctx, driver.Request{Name: "n", ID: id, Owner: name, TTL: ttl})
				if err != nil {
					continue
				}
				if time.Since(began) > ttl/2 {
					_ = l.Release(context.WithoutCancel(ctx), lease) // the lease may be over before the end of the work
					continue
				}
				mu.Lock()
				if holder != "" || lease.Token <= last {
					t.Errorf("%s has got the token %d after %d, beside %q", name, lease.Token, last, holder)
				}
				holder, last = name, lease.Token
				grants++
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				holder = ""
				mu.Unlock()
				_ = l.Release(context.WithoutCancel(ctx), lease)
			}
		})
	}
	for ctx.Err() == nil {
		for _, mode := range []castest.Mode{castest.Pass, castest.LoseAnswers, castest.Pass, castest.Double, castest.Refuse} {
			proxy.Set(mode)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
			proxy.Cut()
		}
	}
	proxy.Set(castest.Pass)
	clients.Wait()
	if t.Logf("%d grants", grants); grants < 5 {
		t.Errorf("only %d grants", grants)
	}
}
