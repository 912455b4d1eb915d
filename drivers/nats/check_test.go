package nats

import (
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// examine returns what the check of a bucket finds, by subject.
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
	const noWatch = `{user: nowatch, password: "pw", permissions: { publish: ["$JS.API.STREAM.INFO.KV_locks",
		"$JS.API.STREAM.MSG.GET.KV_locks", "$KV.locks.>"], subscribe: "_INBOX.>" }}`
	const reader = `{user: reader, password: "pw", permissions: { publish: ["$JS.API.STREAM.INFO.KV_locks",
		"$JS.API.STREAM.MSG.GET.KV_locks"], subscribe: "_INBOX.>" }}`
	s := natstest.Start(t, natstest.Users(appRights, noWatch, reader), jetStream)
	found := examine(t, at(s.Addr(), appUser, appPassword))
	wantFinding(t, found, subjectBucket, driver.LevelUnchecked, "no bucket locks so far")
	openAt(t, s.URL()+"/locks")
	found = examine(t, at(s.Addr(), appUser, appPassword))
	wantFinding(t, found, subjectServer, driver.LevelOK, "NATS 2.")
	wantFinding(t, found, subjectBucket, driver.LevelOK, "one for locks")
	wantFinding(t, found, subjectPermissions, driver.LevelOK, "read, write and watch")
	wantFinding(t, found, subjectReplicas, driver.LevelOK, "one server")
	if server, replicas := found[subjectServer].Server, found[subjectReplicas].Server; !strings.HasPrefix(server, "NATS 2.") ||
		replicas != "servers with the bucket: 1" {
		t.Errorf("the server is %q, %q", server, replicas)
	}
	wantFinding(t, found, subjectSync, driver.LevelUnchecked, "no client can see")
	wantFinding(t, found, subjectLimits, driver.LevelOK, "has 1 keys")
	wantFinding(t, found, subjectLogin, driver.LevelOK, "accepts")
	wantFinding(t, found, subjectGrade, driver.LevelOK, savesWork+": ")
	wantFinding(t, found, "conditional writes", driver.LevelOK, "one was done")
	found = examine(t, at(s.Addr(), "nowatch", "pw"))
	wantFinding(t, found, subjectPermissions, driver.LevelDoubtful, `publish to "$JS.API.CONSUMER.CREATE.KV_locks"`)
	found = examine(t, at(s.Addr(), "reader", "pw"))
	wantFinding(t, found, subjectPermissions, driver.LevelWrong, `publish to "$KV.locks./probe"`)
	js := rawAt(t, s)
	for name, change := range map[string]func(*natsgo.StreamConfig){
		"ttl":   func(c *natsgo.StreamConfig) { c.MaxAge = 1e12 },
		"small": func(c *natsgo.StreamConfig) { c.MaxMsgSize = 1 << 10 },
		"keys":  func(c *natsgo.StreamConfig) { c.MaxMsgs = 1 },
		"bytes": func(c *natsgo.StreamConfig) { c.MaxBytes = 1000 },
	} {
		config := &natsgo.StreamConfig{Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1,
			Discard: natsgo.DiscardNew}
		change(config)
		if _, err := js.AddStream(config); err != nil {
			t.Fatal(err)
		}
		if _, err := js.bucket(name).Put("k", make([]byte, 900)); err != nil {
			t.Fatal(err)
		}
	}
	wantFinding(t, examine(t, s.URL()+"/ttl"), subjectBucket, driver.LevelWrong, "max_age")
	wantFinding(t, examine(t, s.URL()+"/small"), subjectLimits, driver.LevelDoubtful, "longer than the bucket takes")
	wantFinding(t, examine(t, s.URL()+"/keys"), subjectLimits, driver.LevelDoubtful, "1 of 1 keys")
	wantFinding(t, examine(t, s.URL()+"/bytes"), subjectLimits, driver.LevelDoubtful, "of 1000 bytes")
}

// Without a login everybody may do everything, and doctor says so. Without JetStream the error says that.
func TestServersWithoutLogin(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, "jetstream: enabled")
	rawURL := "nats://" + s.Addr() + "/locks"
	openAt(t, rawURL)
	wantFinding(t, examine(t, rawURL), subjectLogin, driver.LevelOK, "whoever")
	off := natstest.Start(t, "server_name: plain")
	rawURL = "nats://" + off.Addr() + "/locks"
	if _, err := Open(t.Context(), rawURL); err == nil || !strings.Contains(err.Error(), "JetStream is not enabled") {
		t.Errorf("without JetStream: %v", err)
	}
	wantFinding(t, examine(t, rawURL), subjectBucket, driver.LevelWrong, "JetStream is not enabled")
}

// The grades of buckets that no server of the test has.
func TestGrades(t *testing.T) {
	for what, c := range map[string]struct {
		config streamConfig
		lags   bool
		want   string
	}{
		"three":         {streamConfig{Replicas: 3}, false, protectsData + ", if all servers have sync_interval: always"},
		"one":           {streamConfig{Replicas: 1}, false, savesWork + ": "},
		"two":           {streamConfig{Replicas: 2}, false, savesWork + ": "},
		"three, lagged": {streamConfig{Replicas: 3}, true, savesWork + ": "},
	} {
		found := map[string]driver.Finding{}
		e := &examination{Report: func(f driver.Finding) { found[f.Subject] = f },
			store: &store{}, info: streamInfo{Config: c.config}}
		if c.lags {
			e.info.Cluster = &clusterInfo{}
			e.info.Cluster.Replicas = append(e.info.Cluster.Replicas, struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
				Offline bool   `json:"offline"`
			}{Name: "n1"})
		}
		e.replicas(t.Context())
		e.sync(t.Context())
		e.grade(t.Context())
		if !strings.HasPrefix(found[subjectGrade].Detail, c.want) {
			t.Errorf("%s: %q, want %q", what, found[subjectGrade].Detail, c.want)
		}
	}
}
