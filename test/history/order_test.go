package history

import (
	"testing"
	"time"
)

func lines(list ...Line) []Line { return list }

func at(ms int, process int, l Line) Line {
	l.At, l.Process, l.Client = time.Duration(ms)*time.Millisecond, process, process
	return l
}

// live is the two lines of a hold.
func live(process int, id, token uint64, from, until int) []Line {
	l := Line{Kind: Live, ID: id, Token: token}
	a, b := at(from, process, l), at(until, process, l)
	a.ErrNil, b.ErrNil = a.At, b.At
	return []Line{a, b}
}

func checkRules(t *testing.T, name string, list []Line, want Rule) {
	t.Helper()
	h, err := Merge(list)
	if err != nil {
		t.Fatal(err)
	}
	r := Check(h)
	if want == "" && r.Err() != nil || want != "" && (r.Count(want) != 1 || len(r.Violations) != 1) {
		t.Errorf("%s: %v, want %q", name, r.Err(), want)
	}
}

func TestEarlyGrants(t *testing.T) {
	grant := func(ms int, token uint64) Line { return at(ms, 0, Line{Kind: Grant, Token: token}) }
	a := live(1, 1, 10, 10, 50)
	checkRules(t, "its own grant", append(lines(grant(9, 10)), a...), "")
	checkRules(t, "after the end", append(lines(grant(51, 11)), a...), "")
	checkRules(t, "before the end", append(lines(grant(50, 11)), a...), NoEarlyGrant)
	checkRules(t, "its own, rolled back and granted again", append(lines(grant(20, 10)), a...), "")
	checkRules(t, "while it was paused", append(lines(grant(40, 11), at(20, 1, Line{Kind: Pause}), at(45, 1, Line{Kind: Resume})), a...), "")
	checkRules(t, "after a clock jumped", append(lines(grant(40, 11), at(30, 0, Line{Kind: Skew}), at(30, 0, Line{Kind: Unskew})), a...), "")
}

func TestOrderOfWaiters(t *testing.T) {
	ask := func(ms int, process int, id uint64) Line {
		return at(ms, process, Line{Kind: Ask, ID: id, Queued: true})
	}
	first, second := live(1, 1, 10, 10, 20), live(1, 2, 11, 30, 40)
	checkRules(t, "in order", append(append(lines(ask(1, 1, 1), ask(2, 1, 2)), first...), second...), "")
	checkRules(t, "out of order", append(append(lines(ask(2, 1, 1), ask(1, 1, 2)), first...), second...), InOrder)
	checkRules(t, "the first gave up", append(lines(ask(1, 1, 3), ask(2, 1, 1), at(9, 1, Line{Kind: Quit, ID: 3})), first...), "")
	checkRules(t, "the first still waits", append(lines(ask(1, 1, 3), ask(2, 1, 1)), first...), InOrder)
	checkRules(t, "another process still waits", append(lines(ask(1, 2, 3), ask(2, 1, 1)), first...), "")
	unqueued := ask(1, 1, 3)
	unqueued.Queued = false
	checkRules(t, "the order is not certain", append(lines(unqueued, ask(2, 1, 1)), first...), "")
}

// Readers exclude writers alone. Between two of them the order of the grants is not known.
func TestReadersAndWriters(t *testing.T) {
	grant := func(ms int, token uint64, shared bool) Line {
		return at(ms, 0, Line{Kind: Grant, Token: token, Shared: shared})
	}
	read := func(process int, id, token uint64, from, until int) []Line {
		lines := live(process, id, token, from, until)
		for i := range lines {
			lines[i].Shared = true
		}
		return lines
	}
	reader := read(1, 1, 10, 10, 50)
	checkRules(t, "two readers", append(lines(grant(9, 11, true)), append(reader, read(2, 2, 11, 20, 60)...)...), "")
	asks := func(ms int) []Line { return lines(at(ms, 2, Line{Kind: Ask, ID: 2})) }
	checkRules(t, "two readers, the later answer first", append(append(asks(5), reader...), read(2, 2, 9, 20, 60)...), "")
	checkRules(t, "two readers with one token", append(reader, read(2, 2, 10, 20, 60)...), RisingTokens)
	checkRules(t, "a reader that asked later", append(append(asks(15), reader...), read(2, 2, 9, 20, 60)...), RisingTokens)
	checkRules(t, "a reader granted beside a reader", append(lines(grant(30, 11, true)), reader...), "")
	checkRules(t, "a writer granted beside a reader", append(lines(grant(30, 11, false)), reader...), NoEarlyGrant)
	checkRules(t, "a reader granted beside a writer", append(lines(grant(30, 11, true)), live(1, 1, 10, 10, 50)...), NoEarlyGrant)
	checkRules(t, "a writer after a reader", append(reader, live(2, 2, 9, 60, 70)...), RisingTokens)
	h, err := Merge(append(reader, live(2, 2, 11, 20, 60)...))
	if err != nil {
		t.Fatal(err)
	}
	if r := Check(h); r.Count(NoOverlap) != 1 {
		t.Errorf("a writer beside a reader: %v", r.Err())
	}
}
