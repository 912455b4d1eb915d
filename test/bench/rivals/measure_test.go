package rivals

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const (
	envRival, envAt = "RIVALS_RIVAL", "RIVALS_AT"

	pairs  = 300
	warmUp = 20
	window = 40 * time.Second // in which statements are counted
	limit  = 50 * time.Second // for a take-over, and for the notice of a loss
)

func rand() string { return crand.Text() }

func TestMain(m *testing.M) {
	if r, child := rivals[os.Getenv(envRival)]; child {
		err := r.hold(context.Background(), os.Getenv(envAt), func() { fmt.Println("held") })
		fmt.Println("lost", err)
		select {}
	}
	if benchmark, r, child := strings.Cut(os.Getenv(envRival), "/"); child {
		fmt.Println("lost", comparisons[benchmark].hold(r, os.Getenv(envAt)))
		select {}
	}
	os.Exit(serverprocess.Run(m))
}

// process is another process that holds or waits.
type process struct {
	cmd        *exec.Cmd
	held, lost chan struct{}
}

func start(b *testing.B, rival, at string) *process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), held: make(chan struct{}), lost: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envRival+"="+rival, envAt+"="+at)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
			case "held":
				close(p.held)
			case "lost":
				if rest != "<nil>" {
					fmt.Fprintln(os.Stderr, rival, rest)
				}
				close(p.lost)
			}
		}
	}()
	b.Cleanup(p.kill)
	return p
}

func (p *process) kill() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() }

func after(signal <-chan struct{}, begin time.Time) string {
	select {
	case <-signal:
		return time.Since(begin).Round(time.Millisecond).String()
	case <-time.After(limit):
		return "not within " + limit.String()
	}
}

// BenchmarkRivals prints one table.
func BenchmarkRivals(b *testing.B) {
	server := postgrestest.Start(b, postgrestest.Options{Settings: map[string]string{"shared_preload_libraries": "pg_stat_statements"}})
	pooler := postgrestest.PgBouncer(b, server, postgrestest.TransactionMode)
	ctx := b.Context()
	admin := func(database, query string, to ...any) {
		conn, err := pgx.Connect(ctx, server.AdminURL(database))
		if err == nil && len(to) > 0 {
			err = conn.QueryRow(ctx, query).Scan(to...)
		} else if err == nil {
			_, err = conn.Exec(ctx, query)
		}
		if err != nil {
			b.Fatal(err)
		}
		_ = conn.Close(ctx)
	}
	admin("postgres", "CREATE EXTENSION pg_stat_statements")
	names := slices.Sorted(maps.Keys(rivals))
	at, database, row := map[string]string{}, map[string]string{}, map[string][]string{}
	var mu sync.Mutex
	add := func(n, text string) { mu.Lock(); row[n] = append(row[n], text); mu.Unlock() }
	took := map[string][2][]time.Duration{}
	type calls struct{ pair, renew, end func() error }
	all := map[string]calls{}
	for _, n := range names {
		at[n] = server.Database(b)
		u, _, _ := strings.Cut(at[n], "?")
		database[n] = u[strings.LastIndex(u, "/")+1:]
		if err := rivals[n].setUp(ctx, at[n]); err != nil {
			b.Fatal(n, err)
		}
		pair, renew, end, err := rivals[n].calls(ctx, at[n])
		if err != nil {
			b.Fatal(n, err)
		}
		all[n] = calls{pair, renew, end}
	}
	for k := range 2 {
		for i := range pairs + warmUp { // one after another, so that noise concerns all
			for _, n := range names {
				f := [...]func() error{all[n].pair, all[n].renew}[k]
				if f == nil {
					continue
				}
				begin := time.Now()
				if err := f(); err != nil {
					b.Fatal(n, err)
				}
				if t := took[n]; i >= warmUp {
					t[k] = append(t[k], time.Since(begin))
					took[n] = t
				}
			}
		}
	}
	for _, n := range names {
		if err := all[n].end(); err != nil {
			b.Fatal(n, err)
		}
	}
	for _, n := range names {
		for _, t := range took[n] {
			slices.Sort(t)
			if len(t) == 0 {
				add(n, "none")
				continue
			}
			add(n, t[len(t)/2].Round(10*time.Microsecond).String())
		}
	}
	count := func(n string) (sent int) {
		admin("postgres", fmt.Sprintf(`SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '%s') AND query ILIKE '%s' AND query NOT LIKE '%%leader_id ||%%'`,
			database[n], rivals[n].statements()), &sent)
		return sent
	}
	each := func(do func(n string)) {
		var wg sync.WaitGroup
		for _, n := range names {
			wg.Go(func() { do(n) })
		}
		wg.Wait()
	}
	perMinute := func(n string) float64 {
		begin := count(n)
		time.Sleep(window)
		return float64(count(n)-begin) * float64(time.Minute) / float64(window)
	}
	each(func(n string) {
		holder := start(b, n, at[n])
		<-holder.held
		time.Sleep(2 * time.Second)
		alone := perMinute(n)
		waiter := start(b, n, at[n])
		time.Sleep(3 * time.Second)
		both := perMinute(n)
		add(n, fmt.Sprintf("%.0f", alone))
		add(n, fmt.Sprintf("%.0f", both-alone))
		holder.kill()
		add(n, after(waiter.held, time.Now()))
		time.Sleep(2 * time.Second)
		admin("postgres", fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'`, database[n]))
		begin := time.Now()
		admin(database[n], rivals[n].robbed())
		add(n, after(waiter.lost, begin))
		waiter.kill()
	})
	for _, n := range names {
		fresh := server.Database(b)
		if err := rivals[n].setUp(ctx, fresh); err != nil {
			b.Fatal(n, err)
		}
		holders := 0
		text := ""
		for range 2 {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			got, err := rivals[n].try(ctx, pooler.At(b, fresh))
			cancel()
			if got {
				holders++
			}
			if err != nil {
				text = ": " + err.Error()
			}
		}
		add(n, fmt.Sprint(holders, text))
	}
	fmt.Println("| | acquire + release | renew | holder, statements/min | waiter, statements/min |",
		"take-over after kill -9 | notified of a loss after | holders behind PgBouncer |")
	for _, n := range names {
		fmt.Println("|", n, "|", strings.Join(row[n], " | "), "|")
	}
}
