//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/integration/env"
)

// A lock is released, its holder is killed (kill -9), its lease is broken, it is freed at once, handed
// over within a process, and released while another process waits — the history has each holder with
// its token, the latest first, and how its tenure ended, as far as the backend can tell (Azure: only of
// the last one).
func TestHistoryOfEveryEnd(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB) backend{onMongo: mongoBackend, onPostgres: postgresBackend,
		onAzure: azureBackend, onFile: fileBackend} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyEnd(t, make(t))
		})
	}
}

func everyEnd(t *testing.T, b backend) {
	name := uniqueName()
	reader := b.client(t, nil)
	var want []driver.Tenure // the latest last
	ended := func(token uint64, owner string, end driver.End) {
		want = append(want, driver.Tenure{Owner: owner, Token: token, End: end})
	}
	as := func(owner string) *testClient {
		return b.client(t, nil, holdfast.WithOwner(owner), holdfast.WithRenewEvery(b.ttl/10))
	}

	h := as("released").lock(name)
	release(t, h)
	ended(h.Token(), "released", driver.EndReleased)
	checkPast(t, b, reader.record(name), want)

	killed := startWorker(t, job{Role: "commands", URL: b.url, Name: name, TTL: b.ttl})
	token := uint64(parse(t, killed.query("lock", "token")))
	owner := reader.record(name).Owner
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	broken := as("broken").lock(name) // when the lease has ended
	ended(token, owner, driver.EndExpired)
	checkPast(t, b, reader.record(name), want)

	if err := reader.Break(testContext(t), name, driver.BreakToken(broken.Token())); err != nil {
		t.Fatal(err)
	}
	if cause := awaitEnd(t, broken); !errors.Is(cause, holdfast.ErrLost) {
		t.Errorf("the broken hold ended with %v, want lost", cause)
	}
	release(t, broken)
	freed := as("freed").lock(name)
	ended(broken.Token(), "broken", driver.EndBroken)
	checkPast(t, b, reader.record(name), want)

	if err := reader.BreakNow(testContext(t), name, driver.BreakToken(freed.Token())); err != nil {
		t.Fatal(err)
	}
	ended(freed.Token(), "freed", driver.EndFreed)
	checkPast(t, b, reader.record(name), want)
	if cause := awaitEnd(t, freed); !errors.Is(cause, holdfast.ErrLost) {
		t.Errorf("the hold that was freed by force ended with %v, want lost", cause)
	}

	h = as("before a waiter").lock(name)
	waiter := as("waiter")
	next := make(chan *holdfast.Hold, 1)
	go func() { next <- waiter.lock(name) }()
	eventually(t, "the waiter waits", func() bool { return waiter.count(holdfast.EventHolderSeen, "") > 0 })
	release(t, h)
	last := <-next
	if last == nil {
		return
	}
	ended(h.Token(), "before a waiter", driver.EndReleased)
	checkPast(t, b, reader.record(name), want)
	release(t, last)
	ended(last.Token(), "waiter", driver.EndReleased)
	checkPast(t, b, reader.record(name), want)
}

// checkPast compares a history with the tenures that the test has caused, the latest last.
func checkPast(t *testing.T, b backend, r holdfast.Record, want []driver.Tenure) {
	t.Helper()
	shown := func(all []driver.Tenure, ends func(i int, e driver.End) driver.End) string {
		var text []string
		for i, one := range all {
			text = append(text, fmt.Sprintf("%s %d %s", one.Owner, one.Token, ends(i, one.End)))
		}
		return strings.Join(text, "\n")
	}
	want = slices.Clone(want)
	slices.Reverse(want)
	wanted := shown(want, func(i int, e driver.End) driver.End {
		switch {
		case b.name != onAzure:
			return e
		case i > 0 || r.State != driver.StateFree:
			return driver.EndUnknown
		case e == driver.EndFreed: // the state of the lease does not tell them apart
			return driver.EndBroken
		}
		return e
	})
	if got := shown(r.History, func(_ int, e driver.End) driver.End { return e }); got != wanted {
		t.Errorf("the history is\n%s\nwant\n%s", got, wanted)
	}
	for _, one := range r.History {
		if one.From.IsZero() || one.Until.IsZero() != (b.name == onAzure) || !one.Until.IsZero() && one.Until.Before(one.From) {
			t.Errorf("%s held the lock from %v until %v", one.Owner, one.From, one.Until)
		}
	}
}

// The primary is killed (SIGKILL), three times, while four clients take turns on one lock — the history
// has every grant that a client has seen, in the order of the tokens and with its owner, and each
// tenure was released or has expired.
func TestHistoryAfterFailover(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	url := m.URL(t) + fmt.Sprintf("&history=%d", driver.MaxHistory)
	var mu sync.Mutex
	owners := map[uint64]string{} // of each token that a client was granted
	grants := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(owners)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for i := range 4 {
		owner := fmt.Sprint("client ", i)
		client := open(t, url, holdfast.WithTTL(10*time.Second), holdfast.WithOwner(owner))
		clients.Go(func() {
			for ctx.Err() == nil {
				// A lost hold or an unreachable backend is expected here; the client tries again.
				_ = client.Do(ctx, "n", func(ctx context.Context) error {
					token, _ := holdfast.TokenFromContext(ctx)
					mu.Lock()
					owners[token] = owner
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					return nil
				})
			}
		})
	}
	awaitMore := func(n int) {
		before := grants()
		eventually(t, fmt.Sprint(n, " more grants"), func() bool { return grants() >= before+n })
	}
	reader := open(t, url)
	check := func() {
		t.Helper()
		var r holdfast.Record
		eventually(t, "a read of the record", func() (ok bool) {
			var err error
			r, err = reader.Inspect(testContext(t), "n")
			return err == nil
		})
		mu.Lock()
		defer mu.Unlock()
		checkTokens(t, r.History, owners)
	}
	awaitMore(20)
	for range 3 {
		member, err := m.Primary(testContext(t))
		env.Check(t, err)
		env.Check(t, m.Kill(testContext(t), member))
		awaitMore(driver.MaxHistory / 3) // so that the grants before the kill are in the history, too
		check()
		env.Check(t, m.Restart(testContext(t), member))
		awaitMore(1)
	}
	cancel()
	clients.Wait()
	check()
	t.Logf("%d grants", grants())
}

// checkTokens compares a history with the grants that clients have seen. The history may lack the
// latest of them, which have come since it was read, and the present holder. It may have requests
// whose callers had given up.
func checkTokens(t *testing.T, history []driver.Tenure, owners map[uint64]string) {
	t.Helper()
	if len(history) < driver.MaxHistory/3 {
		t.Fatalf("%d past holders", len(history))
	}
	seen := map[uint64]bool{}
	for i, one := range history {
		seen[one.Token] = true
		if owner, ok := owners[one.Token]; ok && owner != one.Owner {
			t.Errorf("token %d was granted to %q, but the history has %q", one.Token, owner, one.Owner)
		}
		if one.End != driver.EndReleased && one.End != driver.EndExpired || !strings.HasPrefix(one.Owner, "client ") || one.Until.IsZero() {
			t.Errorf("token %d of %q: %v until %v", one.Token, one.Owner, one.End, one.Until)
		}
		if i > 0 && one.Token >= history[i-1].Token {
			t.Errorf("token %d behind token %d", one.Token, history[i-1].Token)
		}
	}
	for token, owner := range owners {
		if token >= history[len(history)-1].Token && token <= history[0].Token && !seen[token] {
			t.Errorf("the history lacks token %d of %q", token, owner)
		}
	}
}
