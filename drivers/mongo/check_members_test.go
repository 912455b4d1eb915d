package mongo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var errDown = errors.New("down")

func findingsOf(fn func(*checkup)) (found []driver.Finding) {
	fn(&checkup{Report: func(f driver.Finding) { found = append(found, f) }})
	return found
}

// A set is right if it survives the loss of any member.
func TestCheckMembers(t *testing.T) {
	data := func(n int) (all []member) {
		for i := range n {
			all = append(all, member{host: "db" + string(rune('1'+i))})
		}
		return all
	}
	stopped := []member{{host: "db1"}, {host: "db2", err: errDown}, {host: "arb", arbiter: true}}
	for name, c := range map[string]struct {
		members []member
		level   driver.Level
		detail  string
		remedy  string
	}{
		"no majority": {stopped, driver.LevelWrong, "(db2), and no majority acknowledges a write: no lock can be acquired", "Start them."},
		"three":       {data(3), driver.LevelOK, "3 with data", ""},
		"five":        {data(5), driver.LevelOK, "5 with data", ""},
		"two":         {data(2), driver.LevelDoubtful, "2 members with data", "rs.add"},
		"one":         {data(1), driver.LevelDoubtful, "one member", "rs.add"},
		"arbiter":     {append(data(2), member{host: "arb", arbiter: true}), driver.LevelDoubtful, "arb is an arbiter", "Replace the arbiter"},
		"down": {append(data(2), member{host: "db9", err: errDown}), driver.LevelDoubtful, "1 of 3 members do not answer here (db9)",
			"Start them"},
	} {
		f := findingsOf(func(u *checkup) {
			u.stopped = name == "no majority" // the write has said so
			u.reportMembers(c.members)
		})
		if len(f) != 1 || f[0].Level != c.level || !strings.Contains(f[0].Detail, c.detail) || !strings.Contains(f[0].Remedy, c.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Clocks are compared only as exactly as they were read, and the one that is off is named.
func TestCheckClocks(t *testing.T) {
	at := func(offsets ...time.Duration) (all []member) {
		for i, offset := range offsets {
			all = append(all, member{host: "db" + string(rune('1'+i)), offset: offset, within: 10 * time.Millisecond})
		}
		return all
	}
	vague := at(0, 3*time.Second, 0)
	vague[1].within = 3 * time.Second
	for name, c := range map[string]struct {
		members []member
		level   driver.Level
		detail  string
	}{
		"alike":         {at(0, 5*time.Millisecond, -5*time.Millisecond), driver.LevelOK, "within"},
		"all off alike": {at(time.Hour, time.Hour, time.Hour), driver.LevelOK, "within"},
		"one ahead":     {at(0, 10*time.Second, 0), driver.LevelWrong, "clock of db2 is 10s ahead of"},
		"one behind":    {at(0, 0, -2*time.Second), driver.LevelDoubtful, "clock of db3 is 2s behind"},
		"vague reading": {vague, driver.LevelOK, "within"},
		"one clock":     {at(0), driver.LevelUnchecked, "no two clocks"},
		"others down":   {[]member{{host: "a"}, {host: "b", err: errDown}, {host: "c", arbiter: true}}, driver.LevelUnchecked, "no two clocks"},
	} {
		f := findingsOf(func(u *checkup) { u.reportClocks(c.members) })
		if len(f) != 1 || f[0].Level != c.level || !strings.Contains(f[0].Detail, c.detail) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Each doubtful setting of the URL is reported, also if there are two.
func TestCheckConnection(t *testing.T) {
	const direct, idle = "directConnection=true", "maxIdleTimeMS"
	for url, want := range map[string][]string{
		"mongodb://h/app": {"follows the primary"}, "mongodb://h/app?maxIdleTimeMS=240000": {"follows the primary"},
		"mongodb://h/app?maxIdleTimeMS=240001": {idle}, "mongodb://h/app?maxIdleTimeMS=0": {idle},
		"mongodb://h/app?directConnection=true": {direct}, "mongodb://h/app?directConnection=true&maxIdleTimeMS=0": {idle, direct},
	} {
		target, err := parseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		closeIdle(target.client)
		found := findingsOf(func(u *checkup) {
			u.l, u.hello = &Locker{dial: target.client}, mustMarshal(docOf("setName", "rs0"))
			u.connection(t.Context())
		})
		if len(found) != len(want) {
			t.Errorf("%s: %+v", url, found)
			continue
		}
		for i, f := range found {
			doubtful := want[i] == idle || want[i] == direct
			if !strings.Contains(f.Detail, want[i]) || (f.Level == driver.LevelDoubtful) != doubtful {
				t.Errorf("%s: %+v, want %q", url, f, want[i])
			}
		}
	}
}

// The settings of a client that the program gives to New cannot be read. A check says so, and what to set, whatever the server is.
func TestCheckConnectionOfAProgram(t *testing.T) {
	for server, hello := range map[string]doc{"a set": docOf("setName", "rs0"), "a standalone": {}} {
		found := findingsOf(func(u *checkup) {
			u.l, u.hello, u.standalone = &Locker{}, mustMarshal(hello), server == "a standalone"
			u.connection(t.Context())
		})
		if len(found) != 1 || found[0].Subject != subjectConnection || found[0].Level != driver.LevelUnchecked ||
			!strings.Contains(found[0].Remedy, "MaxConnIdleTime") || !strings.Contains(found[0].Remedy, "client for the locks alone") {
			t.Errorf("%s: %+v", server, found)
		}
	}
}

// The server quotes the whole command of a user who lacks a right, with the IDs in it.
func TestCheckCutsCommands(t *testing.T) {
	err := driver.Errorf(`the user lacks a privilege on app.locks: (Unauthorized) not authorized on app` +
		` to execute command { find: "locks", filter: { kid: "secret" } }; grant it the role readWrite`)
	if got, want := plain(err), "not authorized on app to execute find"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
