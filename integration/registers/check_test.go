package registers_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/integration/registers"
	"github.com/holdfast-go/holdfast/test/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	limit = 30 * time.Second
	noEnd = -1
)

// historyBuilder builds the lines of a history. Times are in milliseconds.
type historyBuilder struct {
	lines []history.Line
	id    uint64
}

func (s *historyBuilder) add(process int, at int, l history.Line) *historyBuilder {
	l.Client, l.Process, l.At = process%10, process, ms(at)
	s.lines = append(s.lines, l)
	return s
}

// hold adds a hold: the process begins to wait, its context is live from one time to another, and
// Hold.Err is nil for as long.
func (s *historyBuilder) hold(process int, token uint64, asked, from, until int) *historyBuilder {
	return s.holdWithErr(process, token, asked, from, until, until)
}

func (s *historyBuilder) holdWithErr(process int, token uint64, asked, from, until, errNil int) *historyBuilder {
	s.id++
	id := s.id
	s.add(process, asked, history.Line{Kind: history.Ask, ID: id})
	s.add(process, from, history.Line{Kind: history.Live, ID: id, Token: token, ErrNil: ms(min(from, errNil))})
	return s.add(process, until, history.Line{Kind: history.Live, ID: id, Token: token, ErrNil: ms(errNil)})
}

func (s *historyBuilder) pause(process int, from, until int) *historyBuilder {
	s.add(process, from, history.Line{Kind: history.Pause})
	if until != noEnd {
		s.add(process, until, history.Line{Kind: history.Resume})
	}
	return s
}

func (s *historyBuilder) op(op history.Op, process int, token uint64, value int64, start, end int, o history.Outcome) *historyBuilder {
	s.id++
	id := s.id
	call := history.Line{Kind: history.Call, ID: id, Op: op, Key: "r"}
	if op == history.Write {
		call.Token, call.Value = token, value
	}
	s.add(process, start, call)
	if end != noEnd {
		s.add(process, end, history.Line{Kind: history.Return, ID: id, Token: token, Value: value, Outcome: o})
	}
	return s
}

func (s *historyBuilder) write(process int, token uint64, value int64, start, end int, o history.Outcome) *historyBuilder {
	return s.op(history.Write, process, token, value, start, end, o)
}

func (s *historyBuilder) read(process int, token uint64, value int64, start, end int) *historyBuilder {
	return s.op(history.Read, process, token, value, start, end, history.OK)
}

func (s *historyBuilder) set(process int, token uint64, at int, base, found int64) *historyBuilder {
	return s.add(process, at, history.Line{Kind: history.Set, Token: token, Base: base, Found: found, Value: base + 1})
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func build() *historyBuilder { return &historyBuilder{} }

const (
	ok      = history.OK
	refused = history.Refused
	unknown = history.Unknown
	failed  = history.Failed
)

// Histories that the promises allow, however odd they look.
func TestAllowedHistories(t *testing.T) {
	for name, s := range map[string]*historyBuilder{
		"nothing happened": build(),
		"one after another": build().hold(1, 10, 0, 1, 100).hold(2, 11, 50, 101, 200).hold(1, 15, 120, 201, 300).
			set(1, 10, 50, 0, 0).set(2, 11, 150, 1, 1).set(1, 15, 250, 2, 2),
		"a paused holder is replaced": build().hold(2, 11, 2, 60, 90).holdWithErr(1, 10, 0, 1, 100, 20).pause(1, 20, 95),
		"a process killed while it was stopped": build().hold(2, 11, 2, 60, 90).pause(1, 20, noEnd).
			holdWithErr(1, 10, 0, 1, 70, 20),
		"a holder that did not get to run": build().holdWithErr(1, 10, 0, 1, 100, 20).hold(2, 11, 2, 60, 90).
			add(1, 30, history.Line{Kind: history.Stall, Until: 80 * time.Millisecond}),
		"a clock of the backend jumps": build().hold(1, 10, 0, 1, 100).hold(2, 11, 2, 60, 90).
			add(0, 50, history.Line{Kind: history.Skew}).add(0, 70, history.Line{Kind: history.Unskew}),
		"a grant is seen only after a pause": build().hold(2, 11, 2, 60, 90).holdWithErr(1, 10, 0, 81, 82, 0).pause(1, 1, 80),
		"a paused writer overwrites an update": build().holdWithErr(1, 10, 0, 1, 20, 20).pause(1, 21, 80).hold(2, 11, 30, 60, 100).
			set(2, 11, 70, 0, 0).set(1, 10, 81, 0, 1).set(2, 11, 90, 1, 1),
		"a paused writer's update is overwritten": build().holdWithErr(1, 10, 0, 1, 20, 20).pause(1, 21, 80).hold(2, 11, 30, 60, 100).
			set(2, 11, 70, 0, 0).set(1, 10, 81, 7, 1).set(2, 11, 90, 1, 8),
		"a stale write is refused": build().write(1, 10, 1, 0, 1, ok).write(2, 11, 2, 2, 3, ok).write(1, 10, 3, 4, 5,
			refused).read(2, 11, 2, 6, 7),
		"a stale write before the next holder's": build().write(1, 10, 1, 0, 5, ok).write(2, 11, 2, 4, 7, ok).read(3, 11, 2, 8, 9),
		"a stale write at the same time":         build().write(2, 11, 2, 0, 5, ok).write(1, 10, 1, 4, 6, ok).read(3, 11, 2, 7, 8),
		"an unknown write took effect":           build().write(1, 10, 1, 0, noEnd, "").read(2, 0, 0, 1, 2).read(2, 10, 1, 3, 4),
		"an unknown write took effect late": build().write(1, 10, 1, 0, 1, unknown).write(1, 10, 2, 2, 3, ok).read(2, 10, 2, 4, 5).
			read(2, 10, 1, 6, 7),
		"an unknown write never took effect": build().write(1, 10, 1, 0, noEnd, "").write(2, 11, 2, 1, 2, ok).read(2, 11, 2, 3, 4),
		"a write that failed had no effect":  build().write(1, 10, 1, 0, 1, failed).read(2, 0, 0, 2, 3),
		"a read without an answer":           build().write(1, 10, 1, 0, 1, ok).op(history.Read, 2, 0, 0, 2, 3, unknown),
		"a second write with one token":      build().write(1, 10, 1, 0, 1, ok).write(1, 10, 2, 2, 3, ok).read(1, 10, 2, 4, 5),
		"no goroutine is left":               build().add(1, 1, history.Line{Kind: history.Exit}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := check(t, s).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Histories with one kind of violation each. Check finds it, and nothing else.
func TestForbiddenHistories(t *testing.T) {
	type rules = []history.Rule
	for name, c := range map[string]struct {
		*historyBuilder
		want rules
	}{
		"two contexts are live": {build().hold(1, 10, 0, 1, 100).hold(2, 11, 2, 99, 200),
			rules{history.NoOverlap, history.NoErrOverlap}},
		"two contexts are live for one moment": {build().hold(1, 10, 0, 1, 100).hold(2, 11, 2, 100, 200),
			rules{history.NoOverlap, history.NoErrOverlap}},
		"a short hold within a long one": {build().hold(1, 10, 0, 1, 100).holdWithErr(2, 11, 2, 20, 30, 0), rules{history.NoOverlap}},
		"only the context lasts too long": {build().holdWithErr(1, 10, 0, 1, 100, 50).hold(2, 11, 2, 80, 200),
			rules{history.NoOverlap}},
		"two contexts of one client": {build().hold(1, 10, 0, 1, 100).hold(1, 11, 2, 99, 200),
			rules{history.NoOverlap, history.NoErrOverlap}},
		"paused before the request": {build().pause(1, 0, 1).hold(1, 10, 2, 3, 100).hold(2, 11, 4, 99, 200),
			rules{history.NoOverlap, history.NoErrOverlap}},
		"another process was paused": {build().pause(3, 0, 150).hold(1, 10, 2, 3, 100).hold(2, 11, 4, 99, 200),
			rules{history.NoOverlap, history.NoErrOverlap}},
		"paused, but Err is nil too long": {build().hold(1, 10, 0, 1, 100).pause(1, 10, 90).hold(2, 11, 2, 60, 200),
			rules{history.NoErrOverlap}},
		"a token is granted twice": {build().hold(1, 10, 0, 1, 100).hold(2, 10, 2, 101, 200), rules{history.RisingTokens}},
		"a token is lower": {build().hold(1, 10, 0, 1, 100).hold(2, 12, 2, 101, 200).hold(3, 11, 3, 201, 300),
			rules{history.RisingTokens}},
		"a token is lower while a clock is skewed": {build().add(0, 0, history.Line{Kind: history.Skew}).hold(1, 10, 0, 1, 100).hold(2, 9, 2,
			101, 200), rules{history.RisingTokens}},
		"a stale write is accepted": {build().write(2, 11, 2, 0, 1, ok).write(1, 10, 1, 2, 3, ok),
			rules{history.NoStaleWrite, history.Linearizable}},
		"a stale write after a read of a newer one": {build().write(2, 11, 2, 0, noEnd, "").read(3, 11, 2, 1, 2).write(1, 10, 1, 3, 4, ok),
			rules{history.NoStaleWrite, history.Linearizable}},
		"a write is lost": {build().write(1, 10, 1, 0, 1, ok).read(2, 0, 0, 2, 3), rules{history.Linearizable}},
		"a refused write took effect": {build().write(2, 11, 2, 0, 1, ok).write(1, 10, 1, 2, 3, refused).read(2, 10, 1, 4, 5),
			rules{history.Linearizable}},
		"a fresh write is refused": {build().write(1, 10, 1, 0, 1, ok).write(2, 11, 2, 2, 3, refused),
			rules{history.Linearizable}},
		"reads go back": {build().write(1, 10, 1, 0, 1, ok).write(1, 10, 2, 2, noEnd, "").read(2, 10, 2, 3, 4).read(3, 10, 1, 5, 6),
			rules{history.Linearizable}},
		"a value is read before it was written": {build().read(2, 10, 1, 0, 1).write(1, 10, 1, 2, 3, ok), rules{history.Linearizable}},
		"an update is lost": {build().hold(1, 10, 0, 1, 100).hold(2, 11, 2, 101, 200).set(1, 10, 50, 0, 0).set(2, 11,
			150, 0, 1), rules{history.NoLostUpdate}},
		"an update is lost and no hold was recorded": {build().set(1, 10, 50, 0, 0).set(2, 11, 150, 0, 1), rules{history.NoLostUpdate}},
		"a goroutine is left":                        {build().add(1, 1, history.Line{Kind: history.Exit, Value: 2}), rules{history.NoLeak}},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, c.historyBuilder)
			for _, rule := range history.Rules {
				want := 0
				for _, w := range c.want {
					if w == rule {
						want = 1
					}
				}
				if got := r.Count(rule); got != want {
					t.Errorf("%s: %d, want %d; %v", rule, got, want, r.Err())
				}
			}
			if r.Err() == nil {
				t.Error("no error")
			}
		})
	}
}

// check shuffles the lines first, as merged files may have any order.
func check(t *testing.T, s *historyBuilder) *history.Report {
	t.Helper()
	rand.Shuffle(len(s.lines), func(i, j int) { s.lines[i], s.lines[j] = s.lines[j], s.lines[i] })
	h, err := history.Merge(s.lines)
	if err != nil {
		t.Fatal(err)
	}
	return registers.Check(h, limit)
}

func TestReport(t *testing.T) {
	s := build().hold(1, 10, 0, 1, 100).hold(2, 11, 2, 400, 500).hold(1, 12, 410, 600, 700).
		write(1, 10, 1, 2, 3, ok).write(2, 11, 1, 410, 411, unknown).write(1, 10, 1, 420, 421, refused).set(1, 10, 50, 0, 0).
		add(0, 40, history.Line{Kind: history.Fault, Note: "primary killed"}).add(0, 60, history.Line{Kind: history.Fault,
		Note: "primary killed"})
	r := check(t, s)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Grants != 3 || r.Holders != 2 || r.Vacancy != 300*time.Millisecond || r.Updates != 1 || r.Operations != 3 ||
		r.Refused != 1 || r.Unknown != 1 || r.Faults["primary killed"] != 2 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"3 to 2 clients", "primary killed", "300ms", "overlaps", "lost updates"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, r)
		}
	}
}

func TestMalformedHistories(t *testing.T) {
	for name, s := range map[string]*historyBuilder{
		"a return without a call": build().add(1, 1, history.Line{Kind: history.Return, ID: 7}),
		"two returns":             build().write(1, 10, 1, 0, 1, ok).add(1, 2, history.Line{Kind: history.Return, ID: 1}),
		"two calls with one ID":   build().write(1, 10, 1, 0, 1, ok).add(1, 2, history.Line{Kind: history.Call, ID: 1}),
		"an unknown kind":         build().add(1, 1, history.Line{Kind: "unknown"}),
	} {
		if _, err := history.Merge(s.lines); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A failing history is stored completely, with a picture of each register.
func TestSave(t *testing.T) {
	s := build().hold(1, 10, 0, 1, 100).write(1, 10, 1, 0, 1, ok).read(2, 0, 0, 2, 3).write(2, 11, 7, 4, noEnd, "").pause(2, 5, noEnd)
	r := check(t, s)
	folder, err := registers.Save(t.TempDir(), "bad", s.lines, r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := history.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := registers.Check(again, limit).String(), r.String(); got != want {
		t.Errorf("the stored history differs:\n%s\nwant\n%s", got, want)
	}
	for file, want := range map[string]string{"report.txt": "register \"r\"", "register-r.html": "client 1 (process 1, token 10)"} {
		b, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %q: %v", file, want, err)
		}
	}
}

// The pictures of registers are in the folder, whatever the registers are called.
func TestSaveEscapesRegisters(t *testing.T) {
	lines := []history.Line{{At: 1, Kind: history.Call, ID: 1, Op: history.Write, Key: "../../a/b", Token: 1}}
	folder, err := registers.Save(t.TempDir(), "seed", lines, &history.Report{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "register-..%2F..%2Fa%2Fb.html")); err != nil {
		t.Error(err)
	}
	if got, err := history.LoadLines(folder); err != nil || !slices.Equal(got, lines) {
		t.Errorf("%+v, error %v", got, err)
	}
}
