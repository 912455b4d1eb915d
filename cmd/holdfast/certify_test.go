package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/backendtest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// certified runs "holdfast certify" and returns its report.
func certified(t *testing.T, backend string, flags ...string) (report certificate, text string, code int) {
	t.Helper()
	var out, messages strings.Builder
	code = execute(append([]string{"certify", "-q", "-b", backend, "--json"}, flags...), &out, &messages)
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Fatalf("code %d, %v: %s\n%s", code, err, out.String(), messages.String())
	}
	return report, out.String(), code
}

// Each backend keeps the clauses. The report shows no password and no host, nothing of what was made remains, and a lock of somebody
// else is as it was.
func TestCertify(t *testing.T) {
	serverprocess.Long(t, "waits for leases on real servers to end")
	for scheme, backend := range backendtest.Backends(driver.ReachMachine) {
		t.Run(scheme, func(t *testing.T) {
			rawURL := backend(t)
			lease := takeThere(t, rawURL, "somebody's lock")
			report, text, code := certified(t, rawURL)
			t.Log(text)
			if code != 0 && code != codeDoubtful || len(report.Broken) > 0 || report.Calls == nil || report.Calls.TakeOver == nil {
				t.Errorf("code %d: %s", code, text)
			}
			if report.Server == nil || servers[scheme] != "" && !regexp.MustCompile("^"+servers[scheme]+"$").MatchString(*report.Server) {
				t.Errorf("the report does not name a server such as %s: %s", servers[scheme], text)
			}
			kept := 0
			for _, g := range report.Groups {
				kept += g.Kept
			}
			if kept < lockertest.Clauses()/2 || len(report.NotChecked) == 0 {
				t.Errorf("%d clauses were kept, not checked: %v", kept, report.NotChecked)
			}
			u, err := url.Parse(rawURL)
			if err != nil {
				t.Fatal(err)
			}
			secrets := append(backends.SecretValues(rawURL), u.Host)
			if u.Host == "" || u.Host == "emulator" { // that is no host
				secrets = append(secrets[:len(secrets)-1], "127.0.0.1")
			}
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("the report shows %s: %s", secret, text)
				}
			}
			if r := lookThere(t, rawURL, "somebody's lock"); r.Token != lease.Token || string(r.Data) != "theirs" || r.Broken ||
				r.State != driver.StateHeld && lease.TTL > time.Hour { // a shorter lease may have ended by now
				t.Errorf("the lock of somebody else is %+v", r)
			}
		})
	}
}

// servers are the servers of the lean build, as reports name them.
var servers = map[string]string{"azblob": `\w+-Blob/.*`, "etcd": `etcd 3[\d.]+; voting members: \d`, "file": `a folder on \w+.*`,
	"mongodb": `MongoDB [\d.]+; .*`, "postgres": `PostgreSQL \d+\.\d+; standbys: \d.*`}

// takeThere acquires a lock and leaves it held.
func takeThere(t *testing.T, rawURL, name string) driver.Lease {
	t.Helper()
	l, err := driver.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	ttl := max(l.Info().Limits.MinTTL, min(l.Info().Limits.MaxTTL, 1<<42)) // an hour and more, or as long as it may be
	ttl -= ttl % max(l.Info().Limits.TTLStep, 1)
	lease, err := l.TryAcquire(t.Context(), driver.Request{Name: name, Owner: "somebody", TTL: ttl, Data: []byte("theirs"),
		ID: driver.NewLeaseID("0a0a0a0a-0b0b-4c0c-8d0d-0e0e0e0e0e0e")})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func lookThere(t *testing.T, rawURL, name string) driver.Record {
	t.Helper()
	l, err := driver.OpenForReading(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	r, err := l.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// writeThere writes under the driver's guard, if there is one, and returns what was there before.
func writeThere(t *testing.T, rawURL string, lease driver.Lease) string {
	t.Helper()
	about, _ := driver.Describe(rawURL)
	if about.WriteGuarded == nil {
		return ""
	}
	l, err := driver.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	before, err := about.WriteGuarded(t.Context(), l, lease, "written")
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// Every driver can keep locks apart from others in the same place, and removes them, also those that are held or have data.
func TestApart(t *testing.T) {
	for scheme, backend := range backendtest.Backends(driver.ReachMachine) {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			rawURL := backend(t)
			about, _ := driver.Describe(rawURL)
			if about.Apart == nil {
				t.Fatal("the driver has no Apart")
			}
			theirs := takeThere(t, rawURL, "job")
			own, remove := about.Apart(rawURL, "holdfast_certify_test")
			for range 2 { // the second time after it was removed
				lease := takeThere(t, own, "job")
				takeThere(t, own, "a/b?c=d")
				if before := writeThere(t, own, lease); before != "" {
					t.Errorf("after the removal of what was written there is %q", before)
				}
				if err := remove(t.Context()); err != nil {
					t.Fatal(err)
				}
				if r := lookThere(t, own, "job"); r.State != driver.StateFree || r.Token != 0 || r.Data != nil {
					t.Errorf("after the removal there is %+v", r)
				}
			}
			if r := lookThere(t, rawURL, "job"); r.State != driver.StateHeld || r.Token != theirs.Token || string(r.Data) != "theirs" {
				t.Errorf("the lock beside it is %+v", r)
			}
			wrong, remove := about.Apart(strings.Split(rawURL, ":")[0]+":", "holdfast_certify_test")
			if _, err := driver.Open(t.Context(), wrong); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a URL without a place: %s: %v", wrong, err)
			}
			if err := remove(t.Context()); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("removal of a URL without a place: %v", err)
			}
		})
	}
}

// A store that lets two hold one lock is not certified. Its driver is in a process of its own, since the help of the others must not
// have it.
func TestCertifySick(t *testing.T) {
	const role = "HOLDFAST_TEST_SICK"
	if os.Getenv(role) == "" {
		self := exec.Command(os.Args[0], "-test.run=^TestCertifySick$", "-test.v", "-test.short="+strconv.FormatBool(testing.Short()))
		self.Env = append(os.Environ(), role+"=1")
		if out, err := self.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestCertifySick") {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	t.Setenv(envBackend, "")
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	for name, around := range map[string]func(context.Context, driver.Call, driver.Next) driver.Answer{
		"healthy": passOn, "sick": letsTwoWin, "careless": passOn, "talkative": showsItsKey, "shut": passOn,
		"stingy": grantsNoMore, "hoarding": grantsNoCrashed, "stuck": letsTwoWinThenGrantsNone, "unsteady": answersTheSecondTime(),
		"mute": passOn, "silent": renewsNoMore, "interrupted": passOn,
	} {
		store := memory.NewStore()
		var written fenced
		lateWrites := 0
		var running context.Context // of certify
		driver.Register(driver.Description{
			Name: "Test", Schemes: []string{name}, Examples: []driver.Example{{URL: name + "://HOST/TABLE", Help: "a store of a test"}},
			Params: []string{"apikey"}, Secrets: []string{"apikey"},
			Open: func(context.Context, string) (driver.Locker, error) {
				if name == "shut" {
					return nil, errTalkative
				}
				return driver.Intercept(store.Locker(), around), nil
			},
			OpenForCheck: func(ctx context.Context, _ string) (driver.Locker, error) {
				running = ctx
				return driver.Intercept(store.Locker(), around), nil
			},
			Apart: func(rawURL, _ string) (string, func(context.Context) error) {
				return rawURL, func(context.Context) error {
					removed, store, written = removed+1, memory.NewStore(), fenced{}
					if name == "interrupted" {
						if err := self.Signal(syscall.SIGTERM); err != nil {
							return err
						}
						<-running.Done()
					}
					return nil
				}
			},
			WriteGuarded: func(_ context.Context, _ driver.Locker, lease driver.Lease, value string) (string, error) {
				switch {
				case name == "talkative":
					return "", driver.Denied(errTalkative)
				case name == "mute":
					return "", errTalkative
				case name == "unsteady" && value == "late":
					if lateWrites++; lateWrites == 1 {
						return "", errTalkative
					}
				}
				return written.write(lease.Token, value, name == "careless")
			},
		})
	}
	report, text, code := certified(t, "healthy://joe:s3cr3t-one@db.example.internal/table")
	if code != 0 || !report.Complete || len(report.Broken) > 0 || report.Verdict != driver.LevelOK || strings.Contains(text, "s3cr3t") ||
		strings.Contains(text, "db.example") {
		t.Errorf("code %d: %s", code, text)
	}
	report, text, code = certified(t, "sick://db.example.internal/table")
	if code != codeWrong || report.Verdict != driver.LevelWrong || !strings.Contains(text, "race/exclusion") || removed != 2 {
		t.Errorf("code %d, %d removals: %s", code, removed, text)
	}
	if testing.Short() {
		return // each run takes some ten seconds, most of them waits
	}
	partPause = time.Millisecond
	report, text, code = certified(t, "unsteady://db.example.internal/table")
	if code != 0 || !report.Complete || len(report.Broken) > 0 || report.Calls == nil || report.Calls.Renew.Count < 50 {
		t.Errorf("calls that are not answered at first: code %d: %s", code, text)
	}
	wanted := 0
	if runtime.GOOS != "windows" { // there a process cannot send itself a signal
		report, text, code = certified(t, "interrupted://db.example.internal/table")
		if wanted = 1; code != 128+int(syscall.SIGTERM) || !report.Complete || report.Verdict != driver.LevelOK {
			t.Errorf("a signal during the removal: code %d: %s", code, text)
		}
	}
	report, text, code = certified(t, "careless://db.example.internal/table")
	if code != codeWrong || len(report.Broken) != 1 || report.Broken[0].Clause != "guard/late-write" {
		t.Errorf("a guard that refuses nothing: code %d: %s", code, text)
	}
	const talkative = "talkative://dbserver/table?apikey=s3cr3t%2Dtwo"
	report, text, code = certified(t, talkative)
	if code != codeWrong || strings.Contains(text, "s3cr3t") || strings.Contains(text, "db.internal") || report.Server == nil ||
		*report.Server != "server 1.2 of …, …" ||
		!slices.ContainsFunc(report.Broken, func(b brokenClause) bool { return b.Clause == "checker/Check" }) {
		t.Errorf("a driver that shows its key: code %d: %s", code, text)
	}
	benchTimeout = 5 * time.Second
	report, text, code = certified(t, "stingy://db.example.internal/table", "--for", "8s")
	broken := ""
	for _, b := range report.Broken {
		broken += b.Clause + ": " + strings.Join(b.Failures, "; ") + "\n"
	}
	for _, want := range []string{`clients: lock "holdfast-bench-`, `soak: no client was granted "soak-`} {
		if !strings.Contains(broken, want) {
			t.Errorf("of a store that grants no lock, %s lacks %s", broken, want)
		}
	}
	if code != codeWrong || report.Complete || report.Verdict != driver.LevelWrong || !strings.Contains(text, `"complete":false`) {
		t.Errorf("broken clauses before an error: code %d: %s", code, text)
	}
	report, text, code = certified(t, "hoarding://db.example.internal/table")
	if code != codeWrong || len(report.Broken) != 1 || report.Broken[0].Clause != "clients" || !strings.Contains(text, "-crash-") {
		t.Errorf("a store that grants no lock of a crashed holder: code %d: %s", code, text)
	}
	benchTimeout = 5 * time.Minute
	for _, page := range []struct {
		args []string
		want []string
		code int
	}{
		{[]string{"-b", talkative, "--hosts"}, []string{"server 1.2 at db.internal with the key …", "db.internal:1 refuses the key …"}, 4},
		{[]string{"-b", "shut" + strings.TrimPrefix(talkative, "talkative")}, []string{"db.internal:1 refuses the key …"}, 4},
		{[]string{"-b", "healthy://joe:s3cr3t-one@db.example.internal/table", "--hosts"}, []string{"every clause was kept", "place",
			"healthy://db.example.internal/table", "takeover after a crash", "needs a server that crashes"}, 0},
		{[]string{"-b", "sick://db.example.internal/table"}, []string{"NOT CERTIFIED", "BROKEN race/exclusion", "The contract: At most one"}, 4},
		{[]string{"-b", "healthy://db.example.internal/table", "--for", "3s"}, []string{"every clause was kept",
			" holds of 3 locks by 4 clients, 0 lost, 0 problems"}, 0},
		{[]string{"-b", "sick://db.example.internal/table", "--for", "3s"}, []string{"BROKEN soak", "two clients held"}, 4},
		{[]string{"-b", "healthy://db.example.internal/table", "--timeout", "1s"}, []string{
			"there is no report: it was not finished within 1s"}, 4},
		{[]string{"-b", "mute" + strings.TrimPrefix(talkative, "talkative")}, []string{
			"the guard could not be examined: db.internal:1 refuses the key …"}, 4},
		{[]string{"-b", "silent" + strings.TrimPrefix(talkative, "talkative")}, []string{
			"the measurements could not be finished: db.internal:1 refuses the key …"}, 4},
		{[]string{"-b", "stuck://db.example.internal/table", "--timeout", "20s"}, []string{"BROKEN race/exclusion",
			"the report is not complete: it was not finished within 20s"}, 4},
	} {
		out, code := output(append([]string{"certify"}, page.args...)...)
		for _, want := range page.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q lacks %q:\n%s", page.args, want, out)
			}
		}
		if code != page.code || strings.Contains(out, "s3cr3t") {
			t.Errorf("%q: code %d:\n%s", page.args, code, out)
		}
	}
	benchTimeout = time.Millisecond
	if out, code := output("certify", "-b", "healthy://db.example.internal/table"); code != codeWrong ||
		!strings.Contains(out, "were not finished within 1ms") {
		t.Errorf("a slow store: code %d: %s", code, out)
	}
	if wanted += 18; removed != wanted {
		t.Errorf("%d removals after %d runs", removed, wanted)
	}
}

// A server that cannot keep the promises is not certified: two clusters behind one URL, and a replica set without a majority.
func TestCertifyFaults(t *testing.T) {
	serverprocess.Long(t, "starts servers, and waits for calls that are not answered")
	t.Run("two clusters", func(t *testing.T) {
		t.Parallel()
		server, other := postgrestest.Start(t, postgrestest.Options{}), postgrestest.Start(t, postgrestest.Options{})
		u, err := url.Parse(server.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		postgrestest.SQL(t, other.AdminURL(""), "CREATE DATABASE "+u.Path[1:]+" OWNER "+postgrestest.AppUser)
		u.Host += "," + other.Addr()
		report, text, code := certified(t, u.String())
		if code != codeWrong || report.Verdict != driver.LevelWrong || !slices.ContainsFunc(report.Findings, func(f driver.Finding) bool {
			return f.Subject == "hosts" && f.Level == driver.LevelWrong
		}) {
			t.Errorf("code %d: %s", code, text)
		}
	})
	t.Run("no majority", func(t *testing.T) {
		t.Parallel()
		rs := mongotest.StartReplicaSet(t, mongotest.Options{})
		backend := strings.Replace(rs.URI(), "/?", "/certify?commandTimeout=2s&", 1)
		for member := range 2 {
			if err := rs.Kill(member); err != nil {
				t.Fatal(err)
			}
		}
		out, code := output("certify", "-b", backend, "--timeout", "30s")
		if code != codeWrong || !strings.Contains(out, "primary") || strings.Contains(out, "every clause was kept") {
			t.Errorf("code %d:\n%s", code, out)
		}
	})
}

// fenced is a value that remembers the greatest token.
type fenced struct {
	token uint64
	value string
}

func (f *fenced) write(token uint64, value string, careless bool) (before string, err error) {
	if token < f.token && !careless {
		return "", driver.ErrLost
	}
	before, f.token, f.value = f.value, max(f.token, token), value
	return before, nil
}

func passOn(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	return next(ctx, call)
}

// showsItsKey is the fault of a driver whose findings show a secret, as errTalkative does.
func showsItsKey(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	if call.Method == driver.MethodCheck {
		call.Report(driver.Finding{Subject: "server", Detail: "server 1.2 at db.internal with the key s3cr3t-two",
			Server: "server 1.2 of db.internal, s3cr3t-two"})
		return driver.Answer{}
	}
	return next(ctx, call)
}

// grantsNoMore is the fault of a store that keeps the suite's clauses, and then grants no lock. At last the check fails.
func grantsNoMore(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	switch {
	case call.Method == driver.MethodTryAcquire && (strings.HasPrefix(call.Request.Name, "soak-") ||
		strings.HasSuffix(call.Request.Name, "-handed-over")):
		return driver.Answer{Err: &driver.HeldError{Record: driver.Record{Name: call.Request.Name, State: driver.StateHeld}}}
	case call.Method == driver.MethodCheck:
		return driver.Answer{Err: errTalkative}
	}
	return next(ctx, call)
}

// grantsNoCrashed is the fault of a store that grants no lock of a crashed holder.
func grantsNoCrashed(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	if req := call.Request; call.Method == driver.MethodTryAcquire && strings.Contains(req.Name, "-crash-") && req.Owner != "crashed" {
		return driver.Answer{Err: &driver.HeldError{Record: driver.Record{Name: req.Name, State: driver.StateHeld}}}
	}
	return next(ctx, call)
}

const benchNames = "holdfast-bench-" // of the locks whose calls are measured

// answersTheSecondTime is the fault of a store that is out of reach for a moment: after the suite, the first call of each kind is not
// answered.
func answersTheSecondTime() func(context.Context, driver.Call, driver.Next) driver.Answer {
	var sent sync.Map
	return func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
		for _, names := range []string{"guarded", benchNames} {
			if !strings.HasPrefix(call.Request.Name+call.Lease.Name, names) ||
				call.Method != driver.MethodTryAcquire && call.Method != driver.MethodRenew {
				continue
			}
			if _, again := sent.LoadOrStore(names+string(call.Method), true); !again {
				return driver.Answer{Err: errTalkative}
			}
		}
		return next(ctx, call)
	}
}

// renewsNoMore is the fault of a store that answers no renewal after the suite.
func renewsNoMore(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	if call.Method == driver.MethodRenew && strings.HasPrefix(call.Lease.Name, benchNames) {
		return driver.Answer{Err: errTalkative}
	}
	return next(ctx, call)
}

var errTalkative = errors.New("db.internal:1 refuses the key s3cr3t-two")

// letsTwoWin grants a lock that another holds.
func letsTwoWin(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	a := next(ctx, call)
	if req := call.Request; call.Method == driver.MethodTryAcquire && errors.Is(a.Err, driver.ErrHeld) {
		return driver.Answer{Lease: driver.Lease{Name: req.Name, ID: req.ID, Owner: req.Owner, TTL: req.TTL, Mode: req.Mode, Token: 1}}
	}
	return a
}

// letsTwoWinThenGrantsNone is letsTwoWin of a store that grants no lock after the suite.
func letsTwoWinThenGrantsNone(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
	if call.Method == driver.MethodTryAcquire && strings.HasSuffix(call.Request.Name, "-handed-over") {
		return grantsNoMore(ctx, call, next)
	}
	return letsTwoWin(ctx, call, next)
}
