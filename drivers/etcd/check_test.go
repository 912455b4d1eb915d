package etcd

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// examine returns what the check of a cluster finds, by subject.
func examine(t *testing.T, rawURL string) map[string]driver.Finding {
	t.Helper()
	l := openAt(t, rawURL, onlyReads)
	found := map[string]driver.Finding{}
	if err := l.Check(t.Context(), func(f driver.Finding) { found[f.Subject] = f }); err != nil {
		t.Fatal(err)
	}
	return found
}

func wantFinding(t *testing.T, found map[string]driver.Finding, subject string, level driver.Level, text string) {
	t.Helper()
	f := found[subject]
	if f.Detail == "" || f.Level != level || !strings.Contains(f.Detail, text) || level > driver.LevelUnchecked && f.Remedy == "" {
		t.Errorf("%s: %v %q, remedy %q; want %v %q", subject, f.Level, f.Detail, f.Remedy, level, text)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	openAt(t, s.URL())
	found := examine(t, s.URL())
	wantFinding(t, found, subjectMembers, driver.LevelOK, "addresses that answer: 1 of 1")
	wantFinding(t, found, subjectCluster, driver.LevelOK, "1 voting")
	wantFinding(t, found, subjectAlarms, driver.LevelOK, "none")
	wantFinding(t, found, subjectDatabase, driver.LevelOK, "MiB")
	wantFinding(t, found, subjectCompaction, driver.LevelOK, "--auto-compaction-retention")
	wantFinding(t, found, subjectLogin, driver.LevelOK, "whoever")
	wantFinding(t, found, "conditional writes", driver.LevelOK, "one was done")
	unauthenticated, accepted := driver.LevelDoubtful, driver.LevelOK
	noLogin, login := "no authentication", "accepts"
	if strings.Contains(found[subjectVersion].Detail, " 3.4.") {
		unauthenticated, accepted, noLogin, login = driver.LevelUnchecked, driver.LevelUnchecked, "does not show", "does not show"
	}
	wantFinding(t, examine(t, at(s, appUser, appPassword)), subjectLogin, unauthenticated, noLogin)
	wantFinding(t, examine(t, urlOf(s.Addr(), nowhere(t))), subjectMembers, driver.LevelDoubtful, "1 of 2")
	wantFinding(t, examine(t, urlOf(nowhere(t))), subjectMembers, driver.LevelWrong, "refused")
	wantFinding(t, examine(t, urlOf(startFake(t).addr())), subjectCluster, driver.LevelWrong, "leader")
	if _, err := s.Ask(t.Context(), "", "/v3/kv/compaction", map[string]any{"revision": 2}); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, examine(t, s.URL()), subjectCompaction, driver.LevelOK, "are removed")
	if err := s.EnableLogin(t.Context(), defaultPrefix+"/", map[string]string{appUser: appPassword}); err != nil {
		t.Fatal(err)
	}
	found = examine(t, at(s, appUser, appPassword))
	wantFinding(t, found, subjectMembers, driver.LevelOK, "addresses that answer: 1 of 1")
	wantFinding(t, found, subjectLogin, accepted, login)
	other := etcdtest.Start(t, "--initial-cluster-token=other")
	found = examine(t, strings.Replace(etcdtest.URLOf(other, s), "://", "://"+appUser+":"+appPassword+"@", 1))
	wantFinding(t, found, subjectMembers, driver.LevelWrong, "another cluster")
}

func TestCheckOfACluster(t *testing.T) {
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	found := examine(t, etcdtest.URLOf(all...))
	wantFinding(t, found, subjectMembers, driver.LevelOK, "addresses that answer: 3 of 3")
	wantFinding(t, found, subjectCluster, driver.LevelOK, "3 voting")
	wantFinding(t, examine(t, all[0].URL()), subjectCluster, driver.LevelDoubtful, "not m1, m2")
	if err := all[2].Kill(); err != nil {
		t.Fatal(err)
	}
	found = examine(t, etcdtest.URLOf(all...))
	wantFinding(t, found, subjectMembers, driver.LevelDoubtful, "1 of 3")
	wantFinding(t, found, subjectCluster, driver.LevelDoubtful, "not m2")
}

// With the alarm NOSPACE nothing is granted, and the message says what to do.
func TestCheckAlarm(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	l := openAt(t, s.URL())
	for _, action := range []string{"ACTIVATE", "DEACTIVATE"} {
		if _, err := s.Ask(t.Context(), "", "/v3/maintenance/alarm", map[string]any{"action": action, "alarm": "NOSPACE"}); err != nil {
			t.Fatal(err)
		}
		_, err := l.TryAcquire(t.Context(), request("n", "a"))
		if active := action == "ACTIVATE"; active != (err != nil) ||
			active && (!driver.Lasting(err) || !strings.Contains(err.Error(), "disarm")) {
			t.Errorf("%s: %v", action, err)
		} else if active {
			wantFinding(t, examine(t, s.URL()), subjectAlarms, driver.LevelWrong, "NOSPACE")
		}
	}
}

// What no server of the tests shows.
func TestCheckFindings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		subject string
		level   driver.Level
		text    string
		members int
		status  status
	}{
		{subjectVersion, driver.LevelDoubtful, "3.5.2", 1, status{Version: "3.5.2"}},
		{subjectVersion, driver.LevelDoubtful, "3.5.0-rc.1", 1, status{Version: "3.5.0-rc.1"}},
		{subjectVersion, driver.LevelDoubtful, "3.4.21", 1, status{Version: "3.4.21"}},
		{subjectVersion, driver.LevelWrong, "3.5.5 may", 3, status{Version: "3.5.5"}}, // behind one address
		{subjectVersion, driver.LevelWrong, "3.5.5 may", 0, status{Version: "3.5.5"}}, // they cannot be listed
		{subjectVersion, driver.LevelOK, "3.5.6", 3, status{Version: "3.5.6"}},
		{subjectVersion, driver.LevelOK, "3.7.0", 1, status{Version: "3.7.0"}},
		{subjectDatabase, driver.LevelDoubtful, "90 of 100 MiB", 1, status{DBSize: 90 << 20, DBSizeQuota: 100 << 20}},
		{subjectDatabase, driver.LevelOK, "has 70 MiB", 1, status{DBSize: 70 << 20, DBSizeQuota: 100 << 20}},
	} {
		found := map[string]driver.Finding{}
		e := &examination{Report: func(f driver.Finding) { found[f.Subject] = f }, statuses: []status{c.status}}
		e.list.Members = make([]listed, c.members)
		e.version(t.Context())
		e.database(t.Context())
		wantFinding(t, found, c.subject, c.level, c.text)
	}
	// A cluster that was never compacted, a password without TLS, and members without a common leader.
	f := startFake(t)
	f.set(methodRange, reply{message: from(7)})
	s := storeAt(t, "etcd://u:p@"+f.addr())
	f.set(methodAuthenticate, reply{message: appendBytes(from(7), 2, []byte("t"))})
	found := map[string]driver.Finding{}
	e := &examination{Report: func(f driver.Finding) { found[f.Subject] = f }, store: s,
		statuses: []status{{Leader: 1}, {Leader: 2}}}
	e.statuses[0].Header.Revision = 30_000
	e.compaction(t.Context())
	e.cluster(t.Context())
	f.refuse(methodAuthStatus, statusUnimplemented, "unknown method AuthStatus for service etcdserverpb.Auth")
	f.set(methodAlarm, reply{message: appendBytes(nil, 2, appendNumber(appendNumber(nil, 1, 8), 2, 1))}) // without a header, by 3.4
	e.alarms(t.Context())
	wantFinding(t, found, subjectAlarms, driver.LevelWrong, "NOSPACE")
	e.login(t.Context())
	wantFinding(t, found, subjectLogin, driver.LevelUnchecked, "does not show")
	s.members.all[0].url = "http://etcd1:2379"
	e.login(context.Background())
	wantFinding(t, found, subjectCompaction, driver.LevelDoubtful, "29999 revisions")
	wantFinding(t, found, subjectLogin, driver.LevelDoubtful, "without TLS")
	wantFinding(t, found, subjectCluster, driver.LevelWrong, "do not agree")
}
