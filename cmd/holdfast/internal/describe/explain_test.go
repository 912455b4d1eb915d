package describe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func explained(t *testing.T, x *Explanation) string {
	t.Helper()
	var out strings.Builder
	if err := x.Write(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "    holdfast ") {
			continue // a command is copied as one line
		}
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n >= format.Width && strings.ContainsAny(line, " ") && len(x.Owner) < 40 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	return out.String()
}

// explainedRecord was acquired a minute before it was read, and renewed some time before that.
func explainedRecord(renewed time.Duration) holdfast.Record {
	now := time.Date(2026, 1, 2, 15, 4, 5, 5e8, time.Local)
	return holdfast.Record{
		Name: "nightly report", State: driver.StateHeld, Owner: "web-3.example.com/12345", Token: 1795347103784, TTL: 30 * time.Second,
		Remaining: 30*time.Second - renewed, RemainingKnown: true, AcquiredAt: now.Add(-time.Minute), RenewedAt: now.Add(-renewed), ReadAt: now,
	}
}

func TestExplain(t *testing.T) {
	everything := memory.New().Capabilities()
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		change func(x *Explanation)
		want   []string
	}{
		"healthy": {nil, []string{
			`"nightly report" is held by web-3.example.com/12345, token 1795347103784.`, "since 15:03:05 (1m ago)",
			"last renewed at 15:04:03, 2s ago", "ends, in 28s, at 15:04:33", "    holdfast break 'nightly report' --token 1795347103784\n",
			"Nobody has a position in the queue.",
		}},
		"flag": {func(x *Explanation) { x.Flag = "mongodb://db1,db2/app?replicaSet=rs0" }, []string{
			"This takes it from its holder:",
			"    holdfast break -b 'mongodb://db1,db2/app?replicaSet=rs0' 'nightly report' --token 1795347103784\n"}},
		"flag with a secret": {func(x *Explanation) { x.Flag, x.FlagSecret = "mongodb://app:pw@db1,db2/app", true }, []string{
			"This takes it from its holder, with the same --backend:", "    holdfast break 'nightly report' --token 1795347103784\n"}},
		"late": {func(x *Explanation) { x.Record = explainedRecord(20 * time.Second) },
			[]string{"this one may be dead, paused or cut off from the backend"}},
		"broken": {func(x *Explanation) { x.Broken = true }, []string{
			"It was broken: the backend refuses its renewals.", "Its holder may release it.",
			"If the holder is certainly dead, this frees it at once:",
			"    holdfast break 'nightly report' --token 1795347103784 --now\n",
		}},
		"little is known": {func(x *Explanation) {
			x.Record = holdfast.Record{Name: "n", State: driver.StateHeld}
			x.Can = driver.Capabilities{}
		}, []string{
			"n is held by an unknown owner, token unknown.", "The backend does not say when the lease was last renewed.",
			"The backend does not report its clock.",
			"when the lease ends, at a time that the backend does not report", "it is unknown who waits",
		}},
		"endless": {func(x *Explanation) {
			x.Record = holdfast.Record{Name: "n", State: driver.StateHeld, Endless: true}
		}, []string{
			"n is held by an unknown owner, token unknown.", "This lease never ends: another program or a person took it, not Holdfast.",
			"The lock stays held until it is released or broken.", "find out who took the lease", "This frees it at once",
			"    holdfast break n --unknown\n",
		}},
		"endless, of a known holder": {func(x *Explanation) { x.Endless, x.RemainingKnown = true, false }, []string{
			"This lease never ends. The lock stays held", "    holdfast break 'nightly report' --token 1795347103784\n"}},
		"unknown holder": {func(x *Explanation) { x.Record = holdfast.Record{Name: "n", State: driver.StateHeld} }, []string{
			"The token of its holder is unknown:", "    holdfast break n --unknown\n"}},
		"TTL is known": {func(x *Explanation) { x.RemainingKnown, x.Remaining = false, 0 },
			[]string{"the lease ends at most 30s after the last renewal."}},
		"one waits": {func(x *Explanation) { x.Waiters = 1 }, []string{"One waiter has a position in the queue. It gets the lock next."}},
		"many wait": {func(x *Explanation) { x.Waiters = 12 }, []string{"12 waiters have a position in the queue."}},
		"free": {func(x *Explanation) { x.Record = holdfast.Record{Name: "n", State: driver.StateFree, Token: 7} },
			[]string{"n is free. The last token is 7.", "the next request gets it"}},
		"free, and blocked": {func(x *Explanation) {
			x.Record = holdfast.Record{Name: "n", State: driver.StateFree, Token: 7, Waiters: 1, Blocked: "process 7 has locked its row"}
		}, []string{"n is free.", "Its record is free, but requests wait: process 7 has locked its row."}},
		"held, and blocked": {func(x *Explanation) { x.Blocked = "process 7 has locked its row" },
			[]string{"Requests and renewals wait: process 7 has locked its row."}},
		"reserved": {func(x *Explanation) {
			x.Record = holdfast.Record{Name: "n", State: driver.StateFree, Token: 7, Waiters: 2}
		}, []string{"reserved for a moment for the first of those that wait"}},
		"unknown": {func(x *Explanation) { x.Record = holdfast.Record{Name: "n"} }, []string{"Whether n is held is unknown."}},
		"forgotten": {func(x *Explanation) { x.Info.Failover = driver.GrantsMayBeForgotten },
			[]string{"may forget a grant when a server crashes"}},
		"by observation": {func(x *Explanation) { x.Info.Expiry = driver.ByObservation }, []string{
			"Its holder frees it by a release. Otherwise a process takes it over that has seen no renewal for the whole TTL (30s).",
			"One that has just started waits", "The backend has no clock."}},
		"broken, by observation": {func(x *Explanation) { x.Info.Expiry, x.Broken = driver.ByObservation, true }, []string{
			"Its holder may release it. Otherwise a process takes it over"}},
		"removed": {func(x *Explanation) {
			x.Record, x.Info.Free.RemovedAfter = holdfast.Record{Name: "n", State: driver.StateFree}, day
		}, []string{"The backend has no record of a holder. It removes the record of a lock that was free for 24h."}},
		"clock ahead": {func(x *Explanation) { x.ahead, x.clockError = 1234*time.Millisecond, 3*time.Millisecond }, []string{
			"The backend's clock is 1.23s ahead of this machine's (±3ms)."}},
		"clock behind": {func(x *Explanation) { x.ahead, x.clockError = -25*time.Millisecond, time.Millisecond },
			[]string{"is 25ms behind this machine's (±1ms)"}},
		"history": {func(x *Explanation) {
			at := x.ReadAt
			for end := range driver.EndFreed + 1 {
				x.History = append(x.History, driver.Tenure{Owner: "web-1", Token: uint64(9 - end), From: at.Add(-time.Hour),
					Until: at.Add(-time.Minute), End: end})
			}
			x.History = append(x.History, driver.Tenure{Token: 1, From: at.Add(-day)})
		}, []string{
			"- web-1 had it from 14:04:05 to 15:03:05 (59m), token 9: how it ended is not known.", "token 8: released.",
			"token 7: handed over to a waiter of its own process.",
			"token 6: not renewed in time, so its lease expired.",
			"token 5: taken over by a waiter, because its lease did not end by the backend's clock.",
			"token 4: broken by an operator.", "token 3: freed at once by an operator.",
			"- An unknown owner had it from 2026-01-01 15:04:05, token 1: how it ended is not known.",
		}},
		"unsafe texts": {func(x *Explanation) {
			x.Name, x.Owner = "a\x1b[31mb", "evil\nowner"
			x.History = []driver.Tenure{{Owner: "evil\rowner", Token: 1}}
		}, []string{`"a\x1b[31mb" is held by "evil\nowner"`, `"evil\rowner" had it, token 1`, "holdfast break NAME --token"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &Explanation{Lock: Lock{Record: explainedRecord(2 * time.Second)}, Can: everything, Info: memory.New().Info(),
				Backend: "mongodb://db1,db2/app"}
			if c.change != nil {
				c.change(x)
			}
			text := explained(t, x)
			if strings.Contains(text, "pw") {
				t.Errorf("a password is shown:\n%s", text)
			}
			for _, want := range c.want {
				if got := strings.Join(strings.Fields(text), " "); !strings.Contains(text, want) && !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			if strings.ContainsAny(text, "\x1b\r") {
				t.Errorf("control characters in %q", text)
			}
		})
	}
}

// The difference of the clocks is that at the middle of the call, and the error covers the call.
func TestExplainReadsTheClock(t *testing.T) {
	asked := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		read         time.Time
		ahead, error time.Duration
	}{
		"the same":      {asked.Add(9500 * time.Microsecond), 0, 10500 * time.Microsecond},
		"ahead":         {asked.Add(5*time.Second + 9500*time.Microsecond), 5 * time.Second, 10500 * time.Microsecond},
		"whole seconds": {asked, 490 * time.Millisecond, 510 * time.Millisecond},
		"unknown":       {},
	} {
		x := Explanation{Lock: Lock{Record: holdfast.Record{ReadAt: c.read}}}
		x.ReadClock(asked, asked.Add(20*time.Millisecond))
		if x.ahead != c.ahead || x.clockError != c.error {
			t.Errorf("%s: %v ± %v, want %v ± %v", name, x.ahead, x.clockError, c.ahead, c.error)
		}
	}
}

// cacheRecord is that of a lock that so many holders share: the first is broken, and the second's renewal is overdue.
func cacheRecord(n int) driver.Record {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.Local)
	r := driver.Record{Name: "cache", State: driver.StateHeld, Owner: "gone", Token: 99, TTL: 30 * time.Second, Remaining: 28 * time.Second,
		RemainingKnown: true, ReadAt: now}
	for i := range n {
		h := driver.Holder{Owner: fmt.Sprintf("web-%d", i+1), Token: uint64(i + 1), TTL: 30 * time.Second, Remaining: 28 * time.Second,
			RemainingKnown: true, Broken: i == 0}
		if i == 1 {
			h.Remaining = 9 * time.Second
		}
		r.Holders = append(r.Holders, h)
	}
	return r
}

// explain says who shares a lock, what is wrong with each, and what would free it; and who shared it before.
func TestExplainShared(t *testing.T) {
	everything := memory.New().Capabilities()
	x := &Explanation{Lock: Lock{Record: cacheRecord(12)}, Can: everything, Info: driver.Info{Failover: driver.GrantsSurvive, History: 8}}
	x.History = []driver.Tenure{{Owner: "old", Token: 98, End: driver.EndReleased, Mode: driver.Shared}, {Owner: "older", Token: 97}}
	text := explained(t, x)
	for _, want := range []string{"cache is shared by 12 holders. The latest is web-12, token 12.",
		"  - web-1, token 1, 28s left unless renewed; broken", "  - web-2, token 2, 9s left unless renewed; a renewal is overdue",
		"  - web-3, token 3, 28s left unless renewed.", "web-10",
		"2 more are in the list", "    holdfast break cache --token 12\n", "old shared it", "older had it"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "web-11") || strings.Contains(text, "gone") || strings.Contains(text, "99") {
		t.Errorf("too much is shown:\n%s", text)
	}
	if got := Token(x.Record); got != "12" {
		t.Errorf("a list has the token %s", got)
	}
	one := x.JSON()
	if len(one.Holders) != 12 || one.History[0].Mode != "shared" || one.History[1].Mode != "exclusive" {
		t.Errorf("%+v", one)
	}
	x.Record = cacheRecord(1)
	if text := explained(t, x); !strings.Contains(text, "1 holder that shares it") || !strings.Contains(text, "--token 1\n") {
		t.Error(text)
	}
}

// Every command that is shown for a lock whose name begins with a dash can be pasted.
func TestCommandsForANameWithADash(t *testing.T) {
	shared := holdfast.Record{Name: "-dash", State: driver.StateHeld, Holders: []driver.Holder{{Token: 3}, {Token: 4}}}
	_, breaking := (&Explanation{Lock: Lock{Record: shared}, Can: memory.New().Capabilities()}).wayOutOfHolders()
	slots := (&Explanation{Lock: Lock{Record: holdfast.Record{Name: "-dash"}, Slots: []holdfast.Record{{Name: "-dash"}}}}).ofSlots()
	endless := fmt.Sprint(Facts(holdfast.Record{Name: "-dash", State: driver.StateHeld, Token: 5, Endless: true}))
	for got, want := range map[string]string{
		breaking:                    "holdfast break --token 4 -- -dash",
		slots[len(slots)-1].command: "holdfast explain -- -dash",
		endless:                     "holdfast break --token 5 -- -dash",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
