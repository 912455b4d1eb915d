package sightings

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

const ttl = time.Second

// since returns since when a sighting is the same.
func since(m *Memory[string], s *Sighting[string]) time.Duration {
	_, at := m.Last(s)
	return at
}

// What is seen again is the same since it was seen first, whoever has seen it; another mark begins the count anew, also an
// earlier one in a late reply.
func TestUnchangedSince(t *testing.T) {
	var m Memory[string]
	if mark, at := m.Last(m.Find("n")); mark != "" || at != 0 || m.Find("n") != nil {
		t.Error("a name that nobody has seen has a sighting")
	}
	for _, c := range []struct {
		mark       string
		now, since time.Duration
	}{{"a", 1, 1}, {"a", 5, 1}, {"b", 7, 7}, {"b", 9, 7}, {"a", 11, 11}, {"b", 12, 12}} {
		s, at := m.See("n", c.mark, c.now, ttl, nil)
		if mark, last := m.Last(s); at != c.since || last != at || mark != c.mark || m.Find("n") != s {
			t.Errorf("%v: seen %q since %v", c, mark, at)
		}
	}
	if _, ok := m.Still("n", "a", 13); ok {
		t.Error("what is no longer seen counts")
	}
	if _, ok := m.Still("other", "", 13); ok || m.Find("other") != nil {
		t.Error("a name that nobody has seen counts")
	}
	if at, ok := m.Still("n", "b", 13); !ok || at != 12 {
		t.Errorf("what was seen last counts since %v, %v", at, ok)
	}
}

// A name that nobody sees any more is forgotten, and the new names of a period are bounded. A
// caller that keeps its own sighting loses nothing.
func TestMemoryForgets(t *testing.T) {
	var (
		m   Memory[string]
		now time.Duration
	)
	see := func(name string, keep time.Duration) *Sighting[string] {
		s, _ := m.See(name, "r", now, keep, nil)
		return s
	}
	size := func() int { return len(m.recent) + len(m.earlier) }
	now = 1
	waiting := see("waiting", ttl)
	see("seldom", ttl)
	most := 0
	for i := range 5 * maxNames {
		now++
		see(fmt.Sprint(i), ttl)
		most = max(most, size())
	}
	if most > 2*maxNames {
		t.Errorf("%d names are remembered at once", most)
	}
	if m.Find("waiting") != nil || since(&m, waiting) != 1 {
		t.Error("a caller's own sighting is lost, or nothing was forgotten")
	}
	for range 4 {
		now += 30 * time.Minute // within the period
		see("seldom", ttl)
		see("other", ttl)
	}
	if m.Find("seldom") == nil || m.Find("0") != nil {
		t.Error("a name that is seen now and then is forgotten, or one that nobody sees is remembered")
	}
	if _, ok := m.Still("seldom", "r", now); !ok {
		t.Error("what was seen last does not count")
	}
	for range 2 {
		now += period + 2*ttl
		see("other", ttl)
	}
	if n := size(); n > 2 || m.Find("seldom") != nil {
		t.Errorf("%d names are remembered after hours", n)
	}
	see("long", 24*time.Hour)
	began := now
	for now < began+25*time.Hour {
		now += time.Hour
		see("other", ttl)
	}
	if at := since(&m, m.Find("long")); at != began {
		t.Errorf("what is to be kept for a day was seen %v instead of %v", at, began)
	}
	see("always", Always)
	for range 1000 {
		now += 24 * time.Hour
		see("other", ttl)
	}
	if m.Find("always") == nil {
		t.Error("what is always to be kept is forgotten")
	}
}

// A caller that reads its name repeatedly keeps its sighting although very many names are read.
func TestCallerKeepsItsSighting(t *testing.T) {
	var m Memory[string]
	s, _ := m.See("waiting", "r", 1, ttl, nil)
	for now := range time.Duration(5) {
		for i := range 3 * maxNames { // with a LeaseManager of very many names in between
			m.See(strconv.Itoa(i), "x", now+2, ttl, nil)
		}
		s, _ = m.See("waiting", "r", now+2, ttl, s)
	}
	if at := since(&m, s); at != 1 {
		t.Errorf("what has not changed is the same since %v", at)
	}
}
