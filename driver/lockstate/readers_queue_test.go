package lockstate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// line is a lock whose waiters are named: those that ask as writers begin with a w, and readers with an r.
type line struct {
	lockstate.Lock
	now lockstate.Moment
}

func newLine() *line { return &line{now: lockstate.Moment{Elapsed: time.Hour, Wall: start}} }

// ask sends a request that waits.
func (l *line) ask(who string) bool {
	req := request(who, time.Minute)
	if strings.HasPrefix(who, "r") {
		req.Mode = driver.Shared
	}
	req.QueueFor = time.Minute
	return l.AcquireInTurn(req, who, who, l.now)
}

// ends releases a holder, as a store with a queue does.
func (l *line) ends(who string) {
	if l.Release(who, l.now); l.Holder == "" {
		l.Expires = l.now.Elapsed
	}
}

// woken lists whom the last change wakes.
func (l *line) woken() string {
	var all []string
	for _, w := range l.Woken(l.now) {
		all = append(all, w.ID)
	}
	return strings.Join(all, " ")
}

// A reader that arrives behind a waiting writer waits for it, readers that follow one another are granted the lock
// together, and a writer waits for all of them.
func TestReadersAndWritersInTurn(t *testing.T) {
	l := newLine()
	grant := func(want bool, all ...string) {
		t.Helper()
		for _, who := range all {
			if got := l.ask(who); got != want {
				t.Fatalf("%s: granted %v, want %v; the queue is %v", who, got, want, l.Queue)
			}
		}
	}
	grant(true, "r1", "r2")
	grant(false, "w1", "r3", "r4", "w2", "r5")
	l.ends("r1")
	if got := l.woken(); got != "" {
		t.Errorf("the end of one of two readers wakes %q", got)
	}
	grant(false, "w1", "r3")
	l.ends("r2")
	if got := l.woken(); got != "w1 r3" {
		t.Errorf("the end of the last reader wakes %q", got)
	}
	grant(false, "r3", "w2", "r4") // not yet
	grant(true, "w1")
	l.ends("w1")
	if got := l.woken(); got != "r3 r4" {
		t.Errorf("the end of a writer before readers wakes %q", got)
	}
	if a, b, c := l.Turn("r3"), l.Turn("r4"), l.Turn("w2"); a != 0 || b != 0 || c != driver.Turn(3) {
		t.Errorf("the turns begin after %v, %v and %v", a, b, c)
	}
	grant(false, "w2", "r5", "r6")
	grant(true, "r4", "r3") // in any order
	grant(false, "w2", "r5")
	l.Leave("w2")
	if got := l.woken(); got != "r5 r6" {
		t.Errorf("after the writer before them has left, %q are woken", got)
	}
	grant(true, "r6", "r5", "r7")
	if len(l.Queue) > 0 {
		t.Errorf("the queue is %v", l.Queue)
	}
}

// Behind one reader, which may be dead, a release also wakes the next waiter, as behind a writer: a grant to others removes both.
func TestWriterBehindADeadReader(t *testing.T) {
	l := newLine()
	if !l.ask("w0") || l.ask("r1") || l.ask("w2") || l.ask("w3") {
		t.Fatal("not in turn")
	}
	l.ends("w0")
	if got := l.woken(); got != "r1 w2" {
		t.Errorf("the end of a writer wakes %q", got)
	}
	l.now.Elapsed += driver.TurnLength
	if !l.ask("w2") || l.Position("r1") != 0 || l.Position("w3") != 1 {
		t.Errorf("the writer is refused after the turn of the reader, or the queue is %v", l.Queue)
	}
}

// A writer that has died keeps readers of a shared lock waiting until its position ends, and those of a free lock for
// one turn.
func TestReadersBehindADeadWriter(t *testing.T) {
	l := newLine()
	if !l.ask("r1") || l.ask("w1") || l.ask("r2") {
		t.Fatal("not in turn")
	}
	l.now.Elapsed += time.Minute
	l.Renew("r1", time.Minute, l.now)
	if !l.ask("r2") {
		t.Error("the reader is refused after the position of the writer has ended")
	}
	l = newLine()
	if !l.ask("w0") || l.ask("w1") || l.ask("r2") {
		t.Fatal("not in turn")
	}
	l.ends("w0")
	if l.ask("r2") {
		t.Error("the reader is granted the lock in the turn of the writer")
	}
	l.now.Elapsed += driver.TurnLength
	if !l.ask("r2") || l.Position("w1") != 0 {
		t.Errorf("the reader is refused after the turn of the writer, or the queue is %v", l.Queue)
	}
}

// Whoever waits is granted the lock in the order of arrival, but for readers beside each other. Nobody waits forever.
func TestRandomQueueOfReadersAndWriters(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 28))
		l := newLine()
		var waiting, holding []string // in the order of arrival
		arrive := func(n int) {
			who := fmt.Sprintf("%c%d", "rrrw"[r.IntN(4)], n)
			waiting = append(waiting, who)
		}
		for step := range 300 {
			if step < 200 {
				arrive(step)
			}
			for _, who := range slices.Clone(waiting) { // all ask, in their order
				if !l.ask(who) {
					continue
				}
				i := slices.Index(waiting, who)
				if slices.ContainsFunc(waiting[:i], func(w string) bool { return w[0] == 'w' }) || who[0] == 'w' && i > 0 {
					t.Fatalf("seed %d: %s overtook one of %v", seed, who, waiting[:i])
				}
				waiting, holding = slices.Delete(waiting, i, i+1), append(holding, who)
				if writers := slices.ContainsFunc(holding, func(w string) bool { return w[0] == 'w' }); writers && len(holding) > 1 {
					t.Fatalf("seed %d: %v hold the lock", seed, holding)
				}
			}
			if len(holding) == 0 && len(waiting) > 0 {
				t.Fatalf("seed %d: a free lock was granted to nobody of %v", seed, waiting)
			}
			for len(holding) > 0 && (r.IntN(2) == 0 || step >= 200) {
				i := r.IntN(len(holding))
				l.ends(holding[i])
				holding = slices.Delete(holding, i, i+1)
			}
		}
		if len(waiting)+len(holding) > 0 {
			t.Errorf("seed %d: %v still wait for %v", seed, waiting, holding)
		}
	}
}

// The last valid lease of a shared lock ends by a release or a break. The lock is free from then on, not since an expiry before, so it is
// reserved for the first waiter. The reader whose lease had expired has ended as expired, when it did.
func TestDeadReaderDoesNotEndTheTurnOfAWriter(t *testing.T) {
	for history, end := range map[string]func(l *line){
		"rb released @30, ra expired @10": func(l *line) { l.ends("rb") },
		"rb freed @30, ra expired @10":    func(l *line) { l.BreakNow(l.now, l.Token); l.Expires = l.now.Elapsed },
	} {
		l := &line{now: at(0)}
		if !l.Acquire(shared("ra", 10*time.Second), "ra", l.now) || !l.ask("rb") {
			t.Fatal("a reader was refused")
		}
		l.now = at(20)
		if l.ask("w") {
			t.Error("a writer beside a reader")
		}
		l.now = at(30)
		if end(l); l.Holder != "" || len(l.Readers) > 0 {
			t.Fatalf("%s: %+v", history, l.Lock)
		}
		if l.ask("rc") {
			t.Errorf("%s: a reader that has just come overtook a writer", history)
		}
		if l.Renew("ra", time.Minute, l.now) {
			t.Errorf("%s: a reader whose lease had expired has the lock again", history)
		}
		if got := ends(l.PastHolders(driver.MaxHistory, l.now)); got != history {
			t.Errorf("the history is %s, want %s", got, history)
		}
	}
}
