package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// statementsOfThePage are the statements for other programs: take, renew, release.
func statementsOfThePage(t *testing.T) (take, renew, release string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### From other programs")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := strings.Split(section, "```sql\n")
	if len(blocks) != 4 {
		t.Fatalf("the page has %d statements for other programs, want 3", len(blocks)-1)
	}
	for i, to := range []*string{&take, &renew, &release} {
		*to, _, _ = strings.Cut(blocks[i+1], "```")
	}
	return take, renew, release
}

// psql is a program that runs one statement and ends. It returns what the statement returned.
func psql(t *testing.T, at string) func(statement string) string {
	t.Helper()
	return func(statement string) string {
		out, err := postgrestest.TrySQL(bounded(t), at, statement)
		if err != nil {
			t.Error(err)
		}
		return out
	}
}

// python is a program in Python with one connection, in which transactions begin by themselves.
func python(t *testing.T, at string) func(statement string) string {
	t.Helper()
	client, err := testservers.PythonPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(context.WithoutCancel(t.Context()), "python3", "-B", "testdata/statements.py")
	program.Env = append(os.Environ(), "PYTHONPATH="+client, "PGHOST="+config.Host, "PGPORT="+strconv.Itoa(int(config.Port)),
		"PGUSER="+config.User, "PGPASSWORD="+config.Password, "PGDATABASE="+config.Database)
	program.Stderr = t.Output()
	input, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(input.Close(), program.Wait()); err != nil {
			t.Error(err)
		}
	})
	statements, results := json.NewEncoder(input), json.NewDecoder(output)
	results.UseNumber()
	return func(statement string) string {
		var rows []any
		if err := errors.Join(statements.Encode(statement), results.Decode(&rows)); err != nil {
			t.Error(err)
		}
		return strings.Trim(fmt.Sprint(rows), "[]")
	}
}

// Programs that know the statements of the page alone, and programs with this library, exclude each other.
func TestStatementsForOtherPrograms(t *testing.T) {
	serverprocess.Long(t, "runs the rules of the queue thousands of times")
	t.Parallel()
	take, renew, release := statementsOfThePage(t)
	at := postgrestest.URL(t)
	l := open(t, at)
	var holders atomic.Int32
	var last atomic.Uint64
	holds := func(token uint64) {
		if holders.Add(1) != 1 {
			t.Error("two holders")
		}
		if before := last.Swap(token); before >= token {
			t.Errorf("token %d after %d", token, before)
		}
	}
	const rounds = 3
	var wg sync.WaitGroup
	for g, run := range []func(string) string{psql(t, at), psql(t, at), python(t, at), python(t, at)} {
		wg.Go(func() {
			for granted := 0; granted < rounds; time.Sleep(time.Millisecond) {
				as := strings.NewReplacer("random-id", fmt.Sprint("random-", g, "-", granted)).Replace
				out := run(as(take))
				if t.Failed() {
					return
				}
				if out == "" {
					continue
				}
				var token uint64
				if _, err := fmt.Sscan(out, &token); err != nil {
					t.Error(err)
				}
				holds(token)
				granted++
				if again := run(as(renew)); again != out {
					t.Errorf("renewal: %q", again)
				}
				holders.Add(-1)
				run(as(release))
			}
		})
	}
	for g := range 3 {
		wg.Go(func() {
			for granted := 0; granted < rounds; time.Sleep(time.Millisecond) {
				lease, err := l.TryAcquire(bounded(t), request("job", fmt.Sprint("lease ", g, granted)))
				if errors.Is(err, driver.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				holds(lease.Token)
				granted++
				holders.Add(-1)
				if err := l.Release(bounded(t), lease); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()

	// The library shows such a holder, and can break it.
	postgrestest.SQL(t, at, take)
	if r := wantHeld(t, l, request("job", "x")); r.Owner != "nightly script" || r.Remaining <= 0 {
		t.Errorf("held by %+v", r)
	}
	if err := l.Break(bounded(t), "job", driver.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if out := postgrestest.SQL(t, at, renew); out != "" {
		t.Errorf("a broken lock was renewed: %q", out)
	}
}

// Every way to read a lock reports the token and the owner of another program's lease, and never those of the holder before.
func TestLeasesOfOtherProgramsAreRead(t *testing.T) {
	t.Parallel()
	take, renew, release := statementsOfThePage(t)
	at := postgrestest.URL(t)
	c := client(t, at)
	for _, mode := range execModes {
		l := open(t, with(at, "default_query_exec_mode="+mode))
		before := acquire(t, l, request("job", mode))
		if err := l.Release(bounded(t), before); err != nil {
			t.Fatal(err)
		}
		token := scan[int64](t, c, take)
		if uint64(token) <= before.Token {
			t.Errorf("token %d after %d", token, before.Token)
		}
		for _, step := range []struct {
			statement string
			state     driver.State
		}{
			{"", driver.StateHeld}, {renew, driver.StateHeld},
			{`UPDATE holdfast_locks SET expires = clock_timestamp()`, driver.StateFree}, {release, driver.StateFree},
		} {
			if step.statement != "" {
				run(t, c, step.statement)
			}
			for way, r := range eachWay(t, l, "job") {
				if r.State != step.state || r.Token != uint64(token) || r.Owner != "nightly script" {
					t.Errorf("%s, %s, after %q: %+v", mode, way, step.statement, r)
				}
			}
		}
	}
}

// eachWay returns what each way to read a lock says of it.
func eachWay(t *testing.T, l *Locker, name string) map[string]driver.Record {
	t.Helper()
	one, err := l.Inspect(bounded(t), name)
	if err != nil {
		t.Fatal(err)
	}
	many, errs := l.InspectBatch(bounded(t), "", []string{"another", name, name})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	all := map[string]driver.Record{"Inspect": one, "InspectBatch": many[1], "InspectBatch, again": many[2]}
	for r, err := range l.List(bounded(t), name) {
		if err != nil {
			t.Fatal(err)
		}
		all["List"] = r
	}
	return all
}
