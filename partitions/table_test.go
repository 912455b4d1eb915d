package partitions

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/bridge"
	"github.com/holdfast-go/holdfast/internal/engine"
	"github.com/holdfast-go/holdfast/internal/plan"
)

// withoutOwners is a backend whose batched reads contain tokens, but not owners. Single reads contain
// both.
type withoutOwners struct {
	driver.Locker
	records map[string]driver.Record
	asked   atomic.Int64 // by several goroutines
}

func (b *withoutOwners) Info() driver.Info { return driver.Info{} }
func (b *withoutOwners) Capabilities() driver.Capabilities {
	return driver.Capabilities{BatchInspector: b}
}
func (b *withoutOwners) Close(context.Context) error { return nil }

func (b *withoutOwners) Inspect(_ context.Context, name string) (driver.Record, error) {
	b.asked.Add(1)
	return b.records[name], nil
}

func (b *withoutOwners) InspectBatch(_ context.Context, _ driver.WaiterID, names []string) ([]driver.Record, []error) {
	records := make([]driver.Record, len(names))
	for i, name := range names {
		records[i] = b.records[name]
		records[i].Owner = ""
		if records[i].State == driver.StateUnknown {
			records[i].State = driver.StateFree
		}
	}
	return records, make([]error, len(names))
}

// inspected counts the records that the calls reported to a hook have read.
type inspected struct {
	telemetry.Ignore
	calls, records atomic.Int64 // single reads are made side by side
}

func (h *inspected) End(_ context.Context, op telemetry.Operation, _ time.Duration, _ error) {
	if op.Kind == telemetry.Call && op.Method == "inspect" {
		h.calls.Add(1)
		h.records.Add(int64(op.Locks))
	}
}

// An owner that a batched read does not contain is asked for, and remembered while the token is the same. A hook is notified of every
// read, also of those of one owner each, which cost the most on Azure.
func TestTableRemembersOwnersByToken(t *testing.T) {
	b, hook := &withoutOwners{records: map[string]driver.Record{}}, &inspected{}
	c, err := holdfast.New(b, holdfast.WithHook(hook))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Shutdown(t.Context())
	table := newTable(bridge.Client(c), "g", 2, time.Hour, func(int) (string, bool) { return "", false })
	table.unchanged = true
	for i, step := range []struct {
		owner string
		token uint64
		asked int // single reads so far: of both partitions at first
	}{{"a", 1, 2}, {"a", 1, 2}, {"b", 2, 3}, {"b", 2, 3}, {"a", 3, 4}} {
		b.records[table.names[0]] = driver.Record{Name: table.names[0], State: driver.StateHeld, Owner: step.owner, Token: step.token}
		b.records[table.names[1]] = driver.Record{Name: table.names[1], State: driver.StateHeld, Owner: "o", Token: 1, TTL: time.Minute}
		if err := table.read(t.Context(), time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
		if got := table.rows[0].owner(); got != step.owner || int(b.asked.Load()) != step.asked {
			t.Errorf("read %d: owner %q after %d single reads, want %q after %d", i, got, b.asked.Load(), step.owner, step.asked)
		}
		batches := i + 1
		calls, records := hook.calls.Load(), hook.records.Load()
		if calls != int64(batches+step.asked) || records != int64(4*batches+step.asked) {
			t.Errorf("read %d: %d calls that read %d records, want batches of 4 and %d of 1", i, calls, records, step.asked)
		}
	}
}

// newHold takes a lock of its own store, with a clock of elapsed time.
func newHold(t *testing.T, name string, elapsed *atomic.Int64) *engine.Hold {
	t.Helper()
	c, err := holdfast.New(memory.New(), holdfast.WithElapsed(func() time.Duration { return time.Duration(elapsed.Load()) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
	h, err := c.TryLock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return bridge.Hold(h)
}

// A member lock that this instance has lost may be another's by the next read, which asks for that one: its name would otherwise
// be remembered as this instance's own for as long as it holds the lock, and it would not count as a member.
func TestLostMemberLockIsAnothers(t *testing.T) {
	b := &withoutOwners{records: map[string]driver.Record{}}
	c, err := holdfast.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Shutdown(t.Context())
	var elapsed atomic.Int64
	r := &run{Partitions: &Partitions{n: 1}, me: "me", membership: newHold(t, memberName("g", 0), &elapsed)}
	r.table = newTable(bridge.Client(c), "g", r.n, time.Hour, r.holds)
	read := func(owner string, token uint64) string {
		b.records[memberName("g", 0)] = driver.Record{Name: memberName("g", 0), State: driver.StateHeld, Owner: owner, Token: token}
		if err := r.table.read(t.Context(), time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
		return r.table.rows[r.n].owner()
	}
	if owner := read("me", 1); owner != "me" || b.asked.Load() != 0 {
		t.Errorf("own member lock: owner %q after %d single reads", owner, b.asked.Load())
	}
	elapsed.Store(int64(time.Hour))
	if owner := read("newcomer", 2); owner != "newcomer" {
		t.Errorf("the first read after the loss: owner %q", owner)
	}
	r.membership = nil
	if owner := read("newcomer", 2); owner != "newcomer" {
		t.Errorf("the second read after the loss: owner %q", owner)
	}
}

// The instance "me" knows more of the partitions that it works on than it has read. A partition that it
// does not work on is not its own, whatever the record says.
func TestOwners(t *testing.T) {
	var elapsed atomic.Int64
	working := func(name string) *work { return &work{hold: newHold(t, name, &elapsed)} }
	lost := working("lost")
	elapsed.Store(int64(time.Hour))
	live := working("live")
	held := func(owner string) row {
		return row{known: true, state: driver.StateHeld, heldBy: owner}
	}
	free := row{known: true, state: driver.StateFree}
	for _, x := range []struct {
		what string
		row  row
		work *work
		want string
	}{
		{"free", free, nil, plan.Nobody},
		{"another's", held("other"), nil, "other"},
		{"an owner that is unknown", held(""), nil, plan.Unknown},
		{"a record that could not be read", row{state: driver.StateFree}, nil, plan.Unknown},
		{"at work", held("me"), live, "me"},
		{"at work, read before", free, live, "me"},
		{"being released", free, live, "me"},
		{"a request in doubt", held("me"), nil, plan.Unknown},
		{"lost, the function still runs", free, lost, plan.Unknown},
		{"lost, the record does not say so yet", held("me"), lost, plan.Unknown},
		{"lost, and taken by another", held("other"), lost, "other"},
	} {
		r := &run{Partitions: &Partitions{n: 1}, me: "me", table: &table{rows: []row{x.row}}, works: map[int]*work{}}
		if x.work != nil {
			r.works[0] = x.work
		}
		if got := r.owners(); !slices.Equal(got, []string{x.want}) {
			t.Errorf("%s: %q, want %q", x.what, got, x.want)
		}
	}
}
