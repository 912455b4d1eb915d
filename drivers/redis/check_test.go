package redis

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// examine returns what the check of a server finds, by subject.
func examine(t *testing.T, rawURL string, opts ...Option) map[string]driver.Finding {
	t.Helper()
	l := openAt(t, rawURL, append(opts, unprobed)...)
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

// The grade follows from the set-up.
func TestCheckGrades(t *testing.T) {
	t.Parallel()
	t.Run("safe", func(t *testing.T) {
		t.Parallel()
		found := examine(t, redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always").URL())
		wantFinding(t, found, subjectServer, driver.LevelOK, "it is ")
		wantFinding(t, found, subjectEviction, driver.LevelOK, "noeviction")
		wantFinding(t, found, subjectPersistence, driver.LevelOK, "always")
		wantFinding(t, found, subjectReplicas, driver.LevelOK, "none")
		wantFinding(t, found, subjectWaking, driver.LevelOK, "received")
		wantFinding(t, found, subjectGrade, driver.LevelOK, protectsData)
		if len(found[subjectRole].Detail) > 0 {
			t.Error(found[subjectRole])
		}
		server, replicas := found[subjectServer].Server, found[subjectReplicas].Server
		if !regexp.MustCompile(`^(Redis|Valkey) \d+\.\d+\.\d+$`).MatchString(server) || replicas != "connected replicas: 0" {
			t.Errorf("the server is %q, %q", server, replicas)
		}
	})
	t.Run("as it is installed", func(t *testing.T) {
		t.Parallel()
		found := examine(t, redistest.Start(t, "--save", "3600 1", "--maxmemory-policy", "allkeys-lru").URL())
		wantFinding(t, found, subjectPersistence, driver.LevelDoubtful, "snapshot")
		wantFinding(t, found, subjectEviction, driver.LevelDoubtful, "allkeys-lru")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
	})
	t.Run("a cache", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu", "--appendonly", "yes", "--appendfsync", "everysec")
		found := examine(t, s.URL())
		wantFinding(t, found, subjectEviction, driver.LevelWrong, "any key")
		wantFinding(t, found, subjectPersistence, driver.LevelDoubtful, "everysec")
		wantFinding(t, found, subjectGrade, driver.LevelOK, "removes locks")
	})
	t.Run("old keys", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, "--maxmemory-policy", "volatile-lru")
		wantFinding(t, examine(t, s.URL()), subjectEviction, driver.LevelOK, "removes no locks")
		wantFinding(t, examine(t, s.URL(), WithOldKeys(oldKeyOf)), subjectEviction, driver.LevelDoubtful, "old keys")
		if err := client(t, s.Addr()).ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
			t.Fatal(err)
		}
		found := examine(t, s.URL(), WithOldKeys(oldKeyOf))
		wantFinding(t, found, subjectEviction, driver.LevelWrong, "old keys")
		wantFinding(t, found, subjectGrade, driver.LevelOK, "removes old keys")
	})
	t.Run("no fsync while it is rewritten", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes")
		found := examine(t, s.URL())
		wantFinding(t, found, subjectPersistence, driver.LevelDoubtful, "rewritten")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		always := []string{"--appendonly", "yes", "--appendfsync", "always"}
		s := redistest.Start(t, append(always, "--min-replicas-to-write", "1")...)
		replica := redistest.StartReplica(t, s, always...)
		awaitReplicas(t, s, "1")
		found := examine(t, s.URL())
		wantFinding(t, found, subjectReplicas, driver.LevelOK, "waits for 1")
		wantFinding(t, found, subjectGrade, driver.LevelOK, protectsData)
		wantFinding(t, examine(t, with(s.URL(), "replicas=0")), subjectReplicas, driver.LevelDoubtful, "do not wait")
		wantFinding(t, examine(t, with(s.URL(), "replicas=3")), subjectReplicas, driver.LevelWrong, "1 of 3")
		if err := client(t, s.Addr()).ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
			t.Fatal(err)
		}
		found = examine(t, s.URL())
		wantFinding(t, found, subjectReplicas, driver.LevelDoubtful, "goes on writing")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
		found = examine(t, replica.URL())
		wantFinding(t, found, subjectRole, driver.LevelWrong, "replica")
		wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork)
	})
	t.Run("without rights", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		found := examine(t, makeUser(t, s, "~holdfast:*", "+get", "+time", "+hello"))
		wantFinding(t, found, subjectServer, driver.LevelUnchecked, "cannot be read")
		wantFinding(t, found, subjectWaking, driver.LevelDoubtful, "poll")
		wantFinding(t, found, subjectGrade, driver.LevelOK, "not known")
		found = examine(t, makeUser(t, s, leastRights...))
		wantFinding(t, found, subjectServer, driver.LevelOK, "it is ")
		wantFinding(t, found, subjectWaking, driver.LevelOK, "received")
	})
}

// Programs with another prefix take other locks: doctor names them, and only a prefix that nobody chose is doubtful.
func TestCheckNamesOtherPrefixes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	openAt(t, s.URL())
	wantFinding(t, examine(t, s.URL()), subjectPrefix, driver.LevelOK, `no program with another prefix than "holdfast:"`)
	for i := range scanCount + 1 { // the list has several pages
		if err := client(t, s.Addr()).Set(t.Context(), fmt.Sprint("key", i), "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	openAt(t, with(s.URL(), "prefix=team:"))
	wantFinding(t, examine(t, s.URL()), subjectPrefix, driver.LevelDoubtful, `"team:"`)
	wantFinding(t, examine(t, with(s.URL(), "prefix=team:")), subjectPrefix, driver.LevelOK, `"holdfast:", whose locks are others`)
	for i := range namedPrefixes {
		openAt(t, with(s.URL(), fmt.Sprint("prefix=team", i, ":")))
	}
	wantFinding(t, examine(t, s.URL()), subjectPrefix, driver.LevelDoubtful, "and others")
	without := makeUser(t, s, "~holdfast:*", "+get", "+time", "+hello")
	wantFinding(t, examine(t, without), subjectPrefix, driver.LevelUnchecked, "is not known")
}

// An old server is called wrong.
func TestCheckOfAnOldServer(t *testing.T) {
	found := map[string]driver.Finding{}
	e := &examination{Report: func(f driver.Finding) { found[f.Subject] = f }, store: &store{},
		info: "redis_version:6.2.14\r\nrole:master\r\n"}
	e.server(t.Context())
	wantFinding(t, found, subjectServer, driver.LevelWrong, "6.2.14")
}
