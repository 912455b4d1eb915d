package table

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// modelOf makes a table that shows records, without a program.
func modelOf(t *testing.T, records ...driver.Record) *Model {
	t.Helper()
	client, err := holdfast.New(memory.NewStore().Locker())
	if err != nil {
		t.Fatal(err)
	}
	locktest.ShutDownAtEnd(t, client)
	m := New(t.Context(), client, nil, Options{Backend: "mem:", MayBreak: true})
	now := time.Now()
	m.Update(&lockview.Snapshot{Number: 1, At: now, Records: records, Overdue: now.Add(time.Hour)})
	return m
}

// press sends keys, as they are named by the program's library.
func press(m *Model, keys ...string) {
	for _, key := range keys {
		msg := tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		switch key {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		}
		m.Update(msg)
	}
}

// shown returns the lines of the screen, without styles.
func shown(m *Model) []string { return strings.Split(ansi.Strip(m.View().Content), "\n") }

// The key that opens the help closes it, too.
func TestKeysCloseTheirText(t *testing.T) {
	for _, key := range []string{"?", "h"} {
		m := modelOf(t, samples()...)
		if press(m, key); m.mode != inKeys {
			t.Fatalf("%s opens %d", key, m.mode)
		}
		if press(m, key); m.mode != inTable {
			t.Errorf("%s again leads to %d", key, m.mode)
		}
		if press(m, "enter", key, key); m.mode != inDetail {
			t.Errorf("over one lock: %d", m.mode)
		}
		if press(m, "q"); m.mode != inTable {
			t.Errorf("after the lock: %d", m.mode)
		}
	}
}

// A terminal whose locale is not UTF-8 gets ASCII alone, in the same columns.
func TestOnlyASCIIWhereTheLocaleIsNotUTF8(t *testing.T) {
	if tty.LocaleIsUTF8 {
		t.Skip("the console of this system shows UTF-8")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("LC_ALL", "de_DE.ISO-8859-1")
	m := modelOf(t, driver.Record{Name: "größe-東", State: driver.StateHeld, Owner: "wéb", Token: 7})
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 24})
	text := strings.Join(shown(m), "\n")
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) >= 0 || !strings.Contains(text, "gr??e-??") ||
		!strings.Contains(text, "w?b") {
		t.Errorf("the screen:\n%s", text)
	}
	for _, text := range []string{"größe-東", "👍🏽!", "❤️!", "e\u0301!", "\x1b[1mé\x1b[m!"} {
		if got := toASCII(text); ansi.StringWidth(got) != ansi.StringWidth(text) {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// samples are records of each state, with names and owners that are hard to show.
func samples() []driver.Record {
	now := time.Now()
	return []driver.Record{
		{Name: "a", State: driver.StateHeld, Owner: "web-1", Token: 7, TTL: time.Minute, Remaining: 30 * time.Second, RemainingKnown: true,
			AcquiredAt: now.Add(-time.Hour), RenewedAt: now.Add(-30 * time.Second), Waiters: 3, Data: []byte("secret-data")},
		{Name: "b", State: driver.StateHeld, Broken: true, Owner: "web-2", Token: 1 << 63, TTL: time.Second, Remaining: time.Second,
			RemainingKnown: true},
		{Name: "c", State: driver.StateFree, Owner: "\x1b[31mred\x1b[0m", Token: 3},
		{Name: "d", State: driver.StateUnknown},
		{Name: "e", State: driver.StateHeld, Owner: "azure", AcquiredAt: now.Add(-400 * 24 * time.Hour)},
		{Name: strings.Repeat("long/", 60), State: driver.StateHeld, Owner: strings.Repeat("o", 300), Token: 1},
		{Name: "日本語の名前/🔒", State: driver.StateHeld, Owner: "ü", Token: 1, TTL: 1000 * time.Hour, Remaining: 999 * time.Hour,
			RemainingKnown: true},
		{Name: "new\nline \u202e", State: driver.StateFree},
	}
}

// Whatever is shown fits the window, whatever its size.
func TestTopFitsEveryWindow(t *testing.T) {
	for _, keys := range [][]string{nil, {"w"}, {"/", "long"}, {"enter"}, {"G", "enter"}, {"?"}, {"b"}, {"/", "zzz", "enter"}} {
		m := modelOf(t, samples()...)
		press(m, keys...)
		for _, width := range []int{1, 2, 3, 5, 9, 10, 11, 17, 20, 23, 31, 39, 40, 57, 64, 79, 80, 81, 99, 120, 200, 400} {
			for _, height := range []int{1, 2, 3, 4, 5, 6, 9, 10, 24, 50} {
				m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				for _, key := range []string{"", "j", "G", "k"} {
					if key != "" && len(keys) < 2 && m.mode != inBreak {
						press(m, key)
					}
					lines := shown(m)
					if len(lines) != height {
						t.Fatalf("after %q, %d×%d: %d lines", keys, width, height, len(lines))
					}
					for _, line := range lines {
						if w := ansi.StringWidth(line); w > width || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
							t.Fatalf("after %q, %d×%d: a line of %d cells: %q", keys, width, height, w, line)
						}
					}
				}
			}
		}
	}
}

// The selected row is always on the screen.
func TestTopShowsTheSelectedRow(t *testing.T) {
	var records []driver.Record
	for i := range 100 {
		records = append(records, driver.Record{Name: fmt.Sprintf("job-%02d", i), State: driver.StateFree})
	}
	m := modelOf(t, records...)
	for _, height := range []int{24, 5, 2, 10, 50, 3, 24} {
		m.Update(tea.WindowSizeMsg{Width: 80, Height: height})
		for _, key := range []string{"G", "k", "g", "j", " ", " ", "n", "j", "n"} {
			press(m, key)
			if text := strings.Join(shown(m), "\n"); !strings.Contains(text, "> "+m.name) {
				t.Fatalf("height %d, after %q: %q is not on the screen:\n%s", height, key, m.name, text)
			}
		}
	}
}

// The states differ without colour, and neither data nor a revision is shown anywhere.
func TestTopTellsStatesApartAndNoSecret(t *testing.T) {
	records := samples()
	records[0].Revision = driver.NewRevision("secret-revision")
	m := modelOf(t, records...)
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 50})
	lines := shown(m)
	for i, want := range []string{"held", "broken", "free", "unknown"} {
		if fields := strings.Fields(strings.TrimPrefix(lines[3+i], ">")); fields[1] != want {
			t.Errorf("row %d is %q, want the state %s", i, lines[3+i], want)
		}
	}
	tenures := []driver.Tenure{{Owner: "\x1b[1mweb-0", Token: 6, From: time.Now().Add(-2 * time.Hour), Until: time.Now().Add(-time.Hour),
		End: driver.EndExpired}}
	for i := range records {
		press(m, "enter")
		if i == 0 {
			m.Update(pastMsg{name: m.name, tenures: tenures})
		}
		lines = append(lines, shown(m)...)
		press(m, "b")
		lines = append(lines, shown(m)...)
		press(m, "x", "esc", "j")
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "token 6: not renewed in time, so its lease expired") {
		t.Errorf("the past holder is not shown:\n%s", text)
	} else if strings.Contains(text, "secret") || strings.Contains(text, "\x1b") {
		t.Errorf("a secret, or an escape sequence of an owner, is on the screen:\n%s", text)
	}
}

// The past holders are read when a lock is opened, and again when it has changed hands.
func TestTopReadsPastHolders(t *testing.T) {
	m := modelOf(t, samples()...)
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 50})
	m.openText(inDetail)
	if m.readPast() == nil || m.readPast() != nil {
		t.Fatal("opening a lock leads to no request, or to two at a time")
	}
	a := m.snapshot.Records[0]
	m.Update(pastMsg{name: a.Name, err: context.DeadlineExceeded})
	if m.readPast() == nil {
		t.Fatal("no request after one that has failed")
	}
	m.Update(pastMsg{name: a.Name, token: a.Token, state: a.State, tenures: []driver.Tenure{{Owner: "web-0", Token: 6}}})
	if text := strings.Join(shown(m), "\n"); !strings.Contains(text, "web-0 had it, token 6") {
		t.Errorf("the past holder is not shown:\n%s", text)
	}
	if m.readPast() != nil {
		t.Error("a lock that is as it was is read again")
	}
	m.snapshot.Records[0].State = driver.StateFree
	if m.readPast() == nil {
		t.Error("a lock that was released is not read again")
	}
	press(m, "q", "j")
	if text := m.detail(); strings.Contains(text, "web-0") {
		t.Errorf("the past holder of another lock is shown:\n%s", text)
	}
}

// Only the rows on the screen are drawn: ten thousand locks take no more than a hundred.
func TestTopDrawsOnlyWhatIsOnTheScreen(t *testing.T) {
	var records []driver.Record
	for i := range 10_000 {
		records = append(records, driver.Record{Name: fmt.Sprintf("job-%05d", i), State: driver.StateHeld, Owner: "web", Token: 1})
	}
	cost := func(n int) float64 {
		m := modelOf(t, records[:n]...)
		m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
		least := math.Inf(1) // the count includes what other goroutines allocate
		for range 3 {
			least = min(least, testing.AllocsPerRun(20, func() { m.View() }))
		}
		return least
	}
	if few, many := cost(100), cost(10_000); many > 1.1*few {
		t.Errorf("drawing makes %v allocations for 100 locks, %v for 10,000", few, many)
	}
}

func TestCellDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 1999 * time.Millisecond: "1.9s", 9999 * time.Millisecond: "9.9s", 59 * time.Second: "59s", 61 * time.Second: "1m01s",
		time.Hour: "1h00m", 47 * time.Hour: "1d23h", 99*24*time.Hour + 23*time.Hour: "99d23h", 365 * 24 * time.Hour: "365d", 1 << 62: ">27y",
	} {
		if got := cellDuration(d); got != want || len(got) > 6 {
			t.Errorf("cellDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

// breaking is a Locker whose breaks are recorded.
type breaking struct {
	holdfast.Locker
	broken []driver.BreakTarget
}

func (l *breaking) Capabilities() driver.Capabilities {
	can := l.Locker.Capabilities()
	can.Breaker = l
	return can
}

func (l *breaking) Break(_ context.Context, _ string, target driver.BreakTarget) error {
	l.broken = append(l.broken, target)
	return nil
}

func (l *breaking) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.Break(ctx, name, target)
}

// What the table shows of a lease that never ends: that, and how the lock becomes free. Its holder, whose token is unknown, can be broken.
func TestTopShowsEndlessLeases(t *testing.T) {
	m := modelOf(t, driver.Record{Name: "job", State: driver.StateHeld, Endless: true})
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 40})
	table := strings.Join(shown(m), "\n")
	press(m, "enter")
	detail := strings.Join(shown(m), "\n")
	press(m, "b")
	question := strings.Join(shown(m), "\n")
	for what, c := range map[string]struct {
		text string
		want []string
	}{
		"table":    {table, []string{" never "}},
		"detail":   {detail, []string{"This lease never ends", "holdfast break job --unknown"}},
		"question": {question, []string{"its lease never ends", "FREE AT ONCE"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s does not have %q:\n%s", what, want, c.text)
			}
		}
	}
	l := &breaking{Locker: memory.New()}
	client, err := holdfast.New(l)
	if err != nil {
		t.Fatal(err)
	}
	m.client = client
	if said := m.breakAsked()(); !slices.Equal(l.broken, []driver.BreakTarget{driver.BreakUnknown()}) {
		t.Errorf("the table broke %v: %v", l.broken, said)
	}
	locktest.ShutDown(t, client)
}

// shared is the record of a lock that so many holders share. The first is broken.
func shared(n int) driver.Record {
	r := driver.Record{Name: "cache", State: driver.StateHeld, Owner: "gone", Token: 99, TTL: 30 * time.Second, Remaining: 28 * time.Second,
		RemainingKnown: true}
	for i := range n {
		r.Holders = append(r.Holders, driver.Holder{Owner: fmt.Sprintf("web-%d", i+1), Token: uint64(i + 1), TTL: 30 * time.Second,
			Remaining: 28 * time.Second, RemainingKnown: true, Broken: i == 0})
	}
	return r
}

// The table shows one of those who share a lock and how many others there are, all of them with its details, and breaks
// only if there is one.
func TestTopShowsSharedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time that is left stands still
		m := modelOf(t, shared(3))
		m.width, m.height = 120, 30
		if text := strings.Join(shown(m), "\n"); !strings.Contains(text, "web-3 and 2 more") {
			t.Errorf("the table:\n%s", text)
		}
		press(m, "b")
		if text := strings.Join(shown(m), "\n"); m.mode == inBreak || !strings.Contains(text, "holdfast break cache --token N") {
			t.Errorf("a break of several:\n%s", text)
		}
		press(m, "enter")
		text := strings.Join(shown(m), "\n")
		for _, want := range []string{"shared by   3", "web-1, token 1, 28s left, broken", "web-3, token 3"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		m = modelOf(t, shared(2))
		m.snapshot.Records[0].Holders = m.snapshot.Records[0].Holders[1:]
		m.width, m.height = 80, 24
		press(m, "b")
		if text := strings.Join(shown(m), "\n"); m.mode != inBreak || m.asked.Token != 2 || !strings.Contains(text, `"web-2" (token 2`) {
			t.Errorf("a break of one:\n%s", text)
		}
	})
}

// The command that breaks one holder of a shared lock can be pasted, also for a name that begins with a dash.
func TestCommandForOneHolder(t *testing.T) {
	shared := driver.Record{Name: "-dash", State: driver.StateHeld, Holders: []driver.Holder{{Token: 3}, {Token: 4}}}
	m := modelOf(t, shared)
	if got := m.whyNotBreak(shared); !strings.Contains(got, "holdfast break --token N -- -dash") {
		t.Error(got)
	}
}
