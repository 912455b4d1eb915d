package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/bench/ratio"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// ratioPairs gives an interval of a few percent on a busy machine.
const ratioPairs = 1000

// BenchmarkRatio compares each call with SQL by hand through a pool of the same settings. Those named Same have the
// statement of the driver itself: the rest is what the driver adds. The others have what one writes for a lock with tokens and
// an owner, in a table of the same columns without the queue, its history and the unique pair: a grant by INSERT … ON
// CONFLICT … WHERE it has expired, a renewal and a release by name and holder.
func BenchmarkRatio(b *testing.B) {
	at := postgrestest.URL(b)
	ctx := b.Context()
	l, err := Open(ctx, at, WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.WithoutCancel(ctx)) })
	pool, err := pgxpool.New(ctx, at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	exec := func(sql string, args ...any) error { _, err := pool.Exec(ctx, sql, args...); return err }
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(exec(`CREATE TABLE plain (name text COLLATE "C" PRIMARY KEY, token bigint NOT NULL, holder text NOT NULL, owner text NOT NULL,
		ttl bigint NOT NULL,
		expires timestamptz NOT NULL, acquired_at timestamptz NOT NULL, renewed_at timestamptz NOT NULL, renewals bigint NOT NULL DEFAULT 0,
		data bytea)` + Schema[strings.Index(Schema, " WITH ("):]))
	plain := struct{ acquire, renew, release string }{
		`INSERT INTO plain AS l (name, token, holder, owner, ttl, expires, acquired_at, renewed_at)
			VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2, $3, $4::bigint,
				clock_timestamp() + $4::bigint * interval '1 ms', clock_timestamp(), clock_timestamp())
			ON CONFLICT (name) DO UPDATE SET token = greatest(l.token + 1, excluded.token), holder = $2, owner = $3, ttl = $4::bigint,
				expires = excluded.expires,
				acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at, renewals = 0
			WHERE l.holder = '' OR l.expires <= clock_timestamp() RETURNING token`,
		`UPDATE plain SET expires = clock_timestamp() + $3::bigint * interval '1 ms', renewed_at = clock_timestamp(),
			renewals = renewals + 1 WHERE name = $1 AND holder = $2`,
		`UPDATE plain SET holder = '', expires = clock_timestamp() WHERE name = $1 AND holder = $2`,
	}
	name := func(i int) string { return fmt.Sprint("lock-", i) }
	id := func(i int) string { return fmt.Sprintf("5f0c2f3e-9a3b-4c55-8f7e-%012d", i) }
	lease := func(i int) driver.Lease {
		return driver.Lease{Name: name(i), ID: driver.NewLeaseID(id(i)), TTL: time.Minute}
	}
	acquirePlain := func(i int) error {
		var token int64
		return pool.QueryRow(ctx, plain.acquire, name(i), id(i), "host/1234", int64(60000)).Scan(&token)
	}
	acquire := func(i int) error {
		_, err := l.TryAcquire(ctx, driver.Request{Name: name(i), ID: driver.NewLeaseID(id(i)), Owner: "host/1234", TTL: time.Minute})
		return err
	}
	same := func(i int) key { return keyOf(lease(i + ratioPairs)) } // another row of the driver's table
	acquireSame := func(i int) error {
		return exec(l.sql.acquire, same(i).name, same(i).holder, "host/1234", int64(60000), nil, "", "", false)
	}
	renewSame := func(i int) error { return exec(l.sql.renew, same(i).name, same(i).holder, int64(60000)) }
	releaseSame := func(i int) error { return exec(l.sql.release, same(i).name, same(i).holder) }
	releasePlain := func(i int) error { return exec(plain.release, name(i), id(i)) }
	release := func(i int) error { return l.Release(ctx, lease(i)) }
	renew := func(i int) error { _, err := l.Renew(ctx, lease(i)); return err }
	// held has every lock held, or free, with a full history.
	held := func(b *testing.B, held bool) {
		b.Helper()
		for range 2 {
			for i := range ratioPairs {
				for _, call := range []func(int) error{acquirePlain, acquire, acquireSame, releasePlain, release, releaseSame} {
					must(call(i))
				}
			}
			must(exec(`UPDATE holdfast_locks AS l SET history = (SELECT jsonb_agg(h)
				FROM (SELECT l.history->0 AS h FROM generate_series(1, $1::int)) AS one)`, driver.DefaultHistory))
		}
		for i := 0; i < ratioPairs && held; i++ {
			must(acquirePlain(i))
			must(acquire(i))
			must(acquireSame(i))
		}
		must(exec(`VACUUM ANALYZE`))
	}
	taken, free := func(b *testing.B) { b.Helper(); held(b, true) }, func(b *testing.B) { b.Helper(); held(b, false) }
	for _, c := range []struct {
		name       string
		start      func(b *testing.B)
		base, ours func(i int) error
	}{
		{"SameAcquire", free, acquireSame, acquire},
		{"SameRenew", taken, renewSame, renew},
		{"SameRelease", taken, releaseSame, release},
		{"AcquireNew", func(*testing.B) {}, acquirePlain, acquire},
		{"AcquireAgain", free, acquirePlain, acquire},
		{"Renew", taken, func(i int) error { return exec(plain.renew, name(i), id(i), int64(60000)) }, renew},
		{"Release", taken, releasePlain, release},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				must(exec(`TRUNCATE plain, holdfast_locks`))
				c.start(b)
				ratio.Run(b, ratioPairs, c.base, c.ours).Report(b)
			}
		})
	}
}
