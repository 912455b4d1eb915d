package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// Programs whose users have different encodings by default mean the same lock by the same name, and are notified of it.
func TestEncodingOfTheClient(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	latin := with(at, "options="+queryEscape("-c client_encoding=LATIN1"))
	settings, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	settings.ConnConfig.RuntimeParams["Client_Encoding"] = "LATIN1"
	pool, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	lent, err := New(bounded(t), pool, WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLocker(t, lent) })
	l := open(t, at)
	for what, other := range map[string]*Locker{
		"default of the user": open(t, latin), "parameter": open(t, with(at, "client_encoding=LATIN1")), "pool": lent,
		"listen": open(t, with(at, "listen="+queryEscape(latin))),
	} {
		name := "Zürich €, " + what // the second sign is not one of Latin-1
		held := acquire(t, l, request(name, "a"))
		woken := wakeupsOf(t, other, name, "w")
		r := wantHeld(t, other, waiting(name, "b", "w"))
		if r.Token != held.Token || r.Owner != held.Owner {
			t.Errorf("%s: refused because of %+v", what, r)
		}
		if err := l.Release(bounded(t), held); err != nil {
			t.Fatal(err)
		}
		wantWakeup(t, woken, driver.MayBeFree)
	}
}

// A guard and a fence find the row of a lock by its name, whatever the encoding of the program's own connections is.
func TestGuardsInEveryEncoding(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, at)
	run(t, client(t, at), CreateFences)
	pool := func(at string) *pgxpool.Pool {
		t.Helper()
		pool, err := pgxpool.New(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	for _, mode := range []string{"cache_statement", "exec"} {
		latin := pool(with(at, "client_encoding=LATIN1", "default_query_exec_mode="+mode))
		guard, err := NewGuard(l, latin, pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fence, err := NewFence(latin, pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := NewFence(pool(at), pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		before := testHold{lease: acquire(t, l, request("Zürich, "+mode, "a")), ctx: t.Context()}
		nothing := func(context.Context, pgx.Tx) error { return nil }
		if err := errors.Join(guard.Do(bounded(t), before, nothing), fence.Do(bounded(t), before, nothing)); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if err := other.Raise(bounded(t), before.lease.Name, before.lease.Token+1); err != nil {
			t.Fatal(err)
		}
		if err := fence.Do(bounded(t), before, nothing); !errors.Is(err, ErrFenced) {
			t.Errorf("%s: a later holder has raised the fence: %v", mode, err)
		}
	}
}

// Whatever a role or a database sets for how values are shown, every call reads what is there, in every mode of pgx: where a
// pooler mixes prepared statements up, the driver uses one in which values are texts.
func TestFormatsOfTheUser(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		for _, setting := range []string{
			"DateStyle=German", "IntervalStyle=sql_standard", "TimeZone=Asia/Kolkata", "bytea_output=escape", "quote_all_identifiers=on",
		} {
			t.Run(setting+" "+mode, func(t *testing.T) {
				l := open(t, with(at, "options="+queryEscape("-c "+setting), "default_query_exec_mode="+mode))
				for name, op := range operations() {
					key := setting + mode + name
					op.prepare(t, l, key)
					if err := op.call(bounded(t), l, key); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					checkFault(t, op, l, key, nil)
				}
				raw := client(t, with(at, "options="+queryEscape("-c "+setting), "default_query_exec_mode="+mode))
				run(t, raw, CreateFences)
				fence, err := NewFence(raw, pgx.TxOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := fence.Raise(bounded(t), setting+mode, 1); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// No call leaves a setting or a lock in its session, which a pooler gives to other programs. The table has no lease IDs.
func TestSessionsAreLeftAsTheyWere(t *testing.T) {
	t.Parallel()
	at := postgrestest.URL(t)
	l := open(t, with(at, "pool_max_conns=1"))
	const changed = `SELECT concat_ws(' ', (SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings WHERE source = 'session'),
		(SELECT string_agg(locktype, ' ') FROM pg_locks WHERE pid = pg_backend_pid() AND locktype IN ('advisory', 'tuple')),
		(SELECT string_agg(c, ' ') FROM pg_listening_channels() AS c))`
	for name, op := range operations() {
		op.prepare(t, l, name)
		if err := op.call(bounded(t), l, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var left string
		if err := l.pool.QueryRow(bounded(t), changed).Scan(&left); err != nil || left != "" {
			t.Errorf("%s has left %q, %v", name, left, err)
		}
	}
	program := client(t, at)
	guard, err := NewGuard(l, program, pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	req := request("guarded", secretID)
	req.Owner = "somebody"
	guarded := testHold{lease: acquire(t, l, req), ctx: t.Context()}
	if err := guard.Do(bounded(t), guarded, func(context.Context, pgx.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	if left := scan[string](t, program, changed); left != "" {
		t.Errorf("a guard has left %q", left)
	}
	if scan[bool](t, program, `SELECT EXISTS (SELECT FROM holdfast_locks AS l WHERE strpos(l::text, $1) > 0)`, secretID) {
		t.Error("the row has the lease ID, which is a secret")
	}
}

// A pooler may keep the encoding that was asked for to itself.
func TestEncodingThatIsNotPassedOn(t *testing.T) {
	t.Parallel()
	f := found{version: minVersion, encoding: "UTF8", client: "LATIN1"}
	wantError(t, f.refusal(), driver.ErrInvalid, "client_encoding", "LATIN1", "pooler")
	c := client(t, postgrestest.URL(t))
	run(t, c, `SET client_encoding = 'LATIN1'`)
	if f, err := lookUp(bounded(t), c, tableName{"", DefaultTable}); f.client != "LATIN1" || err != nil {
		t.Errorf("the encoding is %q, error %v", f.client, err)
	}
}
