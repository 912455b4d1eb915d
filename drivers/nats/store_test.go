package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// Different keys have different subjects, which every bucket may have, and each subject leads back to its key.
func TestSubjects(t *testing.T) {
	s := &store{settings: settings{bucket: "b"}}
	for name, want := range map[string]string{
		"job": "job", "team.job": "team.job", "a..b.": "a=2e.b=2e", ".a": "=2ea", "a/B": "a=2f=42", "%2e": "=252e", "a%2e": "a=252e", "~": "=7e",
		strings.Repeat("x", 200): strings.Repeat("x", 75) + "/" + lockrecord.Key(strings.Repeat("x", 200))[76:],
	} {
		key := lockrecord.Key(name)
		subject := s.subject(key)
		if got := strings.TrimPrefix(subject, "$KV.b."); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
		if back, ok := s.keyOf(subject); !ok || back != key {
			t.Errorf("%s leads to %q, %v, want %q", subject, back, ok, key)
		}
	}
	if got := s.subject(cas.ProbeKey); got != "$KV.b./probe" {
		t.Error(got)
	}
	if got := s.config().ProbeValue; got != "the key /probe of the bucket b" {
		t.Errorf("a person finds the verdict in %s", got)
	}
	for _, subject := range []string{"$KV.c.a", "$KV.b.", "$KV.b.A%", "$KV.b.a=2eb", "$KV.b.~"} {
		if key, ok := s.keyOf(subject); ok {
			t.Errorf("%s leads to %q", subject, key)
		}
	}
}

// raw is what a person can do with a bucket.
type raw struct {
	natsgo.JetStreamContext
	t *testing.T
}

func rawAt(t *testing.T, s *natstest.Server) raw {
	t.Helper()
	js, err := admin(t, s.URL()).JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return raw{js, t}
}

func (r raw) bucket(name string) natsgo.KeyValue {
	r.t.Helper()
	kv, err := r.KeyValue(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return kv
}

// One write of several with a condition is done. What a person writes or removes by hand has another version, and a key that was removed in
// any way has no value, and can get one.
func TestPut(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openAt(t, server.URL()+"/locks").store
	kv := rawAt(t, server).bucket("locks")
	ctx := t.Context()
	conflict := func(what, key, version string) {
		t.Helper()
		if _, err := s.Put(ctx, key, []byte("late"), version); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	first, err := s.Put(ctx, "k", []byte("first"), "")
	if err != nil || first.Version == "" || time.Since(first.Now).Abs() > time.Minute {
		t.Fatalf("%+v, %v", first, err)
	}
	conflict("a second first write", "k", "")
	for _, version := range []string{"1", "0", "-1", "x", first.Version + "0"} {
		conflict("the version "+version, "k", version)
	}
	conflict("a version of a key without a value", "none", first.Version)
	if v, err := s.Get(ctx, "none"); err != nil || v.Version != "" || v.Now.IsZero() {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := kv.Put("k", []byte("by hand")); err != nil {
		t.Fatal(err)
	}
	conflict("a write over an edit by hand", "k", first.Version)
	for what, remove := range map[string]func(string, ...natsgo.DeleteOpt) error{"deleted": kv.Delete, "purged": kv.Purge} {
		before, err := s.Get(ctx, "k")
		if err != nil || before.Version == "" {
			t.Fatalf("%+v, %v", before, err)
		}
		if err := remove("k"); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Get(ctx, "k"); err != nil || v.Version != "" || v.Data != nil {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
		conflict(what+", and a write with the version before", "k", before.Version)
		if w, err := s.Put(ctx, "k", []byte("again"), ""); err != nil || w.Version == "" {
			t.Errorf("%s, and written: %+v, %v", what, w, err)
		}
		conflict(what+", and written twice", "k", "")
	}
}

// A bucket that is deleted is an error that lasts. One that is made anew has none of the versions of the former one.
func TestBucketMadeAnew(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	var log bytes.Buffer
	l := openAt(t, server.URL()+"/locks", loggingTo(&log))
	if !strings.Contains(log.String(), "bucket=locks replicas=1") {
		t.Errorf("logged %q", log.String())
	}
	old, err := l.store.Put(t.Context(), "k", []byte("old"), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := rawAt(t, server).DeleteKeyValue("locks"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "does not exist any more") {
		t.Errorf("without the bucket: %v", err)
	}
	// Another stream that has the subjects now gets none of the writes.
	js := rawAt(t, server)
	if _, err := js.AddStream(&natsgo.StreamConfig{Name: "other", Subjects: []string{"$KV.locks.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Put(t.Context(), "k", []byte("astray"), ""); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("with another stream: %v", err)
	}
	if _, err := Open(t.Context(), server.URL()+"/locks"); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "subjects") {
		t.Errorf("with another stream: %v", err)
	}
	if info, err := js.StreamInfo("other"); err != nil || info.State.Msgs != 0 {
		t.Errorf("the other stream has got a write: %+v, %v", info, err)
	}
	if err := js.DeleteStream("other"); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	again := openAt(t, server.URL()+"/locks", loggingTo(&log)).store
	for range 3 {
		w, err := again.Put(t.Context(), fmt.Sprint("k", time.Now().UnixNano()), []byte("new"), "")
		if err != nil || len(w.Version) < len(old.Version) || len(w.Version) == len(old.Version) && w.Version <= old.Version {
			t.Errorf("version %s after %s, %v", w.Version, old.Version, err)
		}
	}
	log.Reset()
	openAt(t, server.URL()+"/locks", loggingTo(&log))
	if log.Len() > 0 {
		t.Errorf("a bucket that exists: logged %q", log.String())
	}
}

// A bucket whose settings would lose locks is refused, named with the setting, and not changed.
func TestRefusedBuckets(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	js := rawAt(t, server)
	good := func(name string) *natsgo.StreamConfig {
		return &natsgo.StreamConfig{Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1,
			Discard: natsgo.DiscardNew, Storage: natsgo.FileStorage}
	}
	for name, c := range map[string]struct {
		change func(*natsgo.StreamConfig)
		want   string
	}{
		"good":     {func(*natsgo.StreamConfig) {}, ""},
		"ttl":      {func(c *natsgo.StreamConfig) { c.MaxAge = time.Hour }, "max_age"},
		"old":      {func(c *natsgo.StreamConfig) { c.Discard = natsgo.DiscardOld }, "discard old"},
		"history":  {func(c *natsgo.StreamConfig) { c.MaxMsgsPerSubject = 5 }, "history is 5"},
		"memory":   {func(c *natsgo.StreamConfig) { c.Storage = natsgo.MemoryStorage }, "in memory"},
		"work":     {func(c *natsgo.StreamConfig) { c.Retention = natsgo.WorkQueuePolicy }, "retention"},
		"noack":    {func(c *natsgo.StreamConfig) { c.NoAck = true }, "no_ack"},
		"subjects": {func(c *natsgo.StreamConfig) { c.Subjects = append(c.Subjects, "other") }, "subjects"},
		"mirror":   {func(c *natsgo.StreamConfig) { c.Subjects, c.Mirror = nil, &natsgo.StreamSource{Name: "KV_good"} }, "copies"},
		"sources":  {func(c *natsgo.StreamConfig) { c.Sources = []*natsgo.StreamSource{{Name: "KV_good"}} }, "copies"},
	} {
		config := good(name)
		c.change(config)
		if _, err := js.AddStream(config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before, err := js.StreamInfo(config.Name)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(t.Context(), server.URL()+"/"+name)
		if err == nil {
			_ = l.Close(t.Context())
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		after, err := js.StreamInfo(config.Name)
		copied := c.want == "copies" // what is written into the other one comes into it
		if err != nil || c.want != "" && (!reflect.DeepEqual(after.Config, before.Config) ||
			!copied && after.State.LastSeq != before.State.LastSeq) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
}

// Settings that the client library cannot name are refused as well.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	conn := admin(t, server.URL())
	for name, setting := range map[string]string{"persist_mode": `"async"`, "discard_new_per_subject": "true"} {
		answer, err := conn.Request("$JS.API.STREAM.CREATE.KV_"+name, fmt.Appendf(nil, `{"name":"KV_%s","subjects":["$KV.%s.>"],
			"retention":"limits","max_msgs_per_subject":1,"discard":"new","storage":"file","num_replicas":1,%q:%s}`, name, name, name, setting),
			10*time.Second)
		if err != nil || strings.Contains(string(answer.Data), `"error"`) {
			t.Fatalf("%s: %s, %v", name, answer.Data, err)
		}
		_, err = Open(t.Context(), server.URL()+"/"+name)
		if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		wantFinding(t, examine(t, server.URL()+"/"+name), subjectBucket, driver.LevelWrong, name)
	}
}

// A full bucket refuses new locks, says so, and keeps those that it has.
func TestFullBucket(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	_, err := rawAt(t, server).AddStream(&natsgo.StreamConfig{Name: "KV_full", Subjects: []string{"$KV.full.>"}, MaxMsgsPerSubject: 1,
		Discard: natsgo.DiscardNew, MaxMsgs: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := openAt(t, server.URL()+"/full") // has written its own key
	lease, err := l.TryAcquire(t.Context(), request("first", "a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.TryAcquire(t.Context(), request("second", "a"))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "limits") {
		t.Errorf("a full bucket: %v", err)
	}
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Errorf("a renewal in a full bucket: %v", err)
	}
}

// The number of requests of each call.
func TestRequests(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	var sent atomic.Int64
	openAt(t, server.URL()+"/locks")
	l := openAt(t, server.URL()+"/locks", onlyReads, func(c *settings) { c.sent = func() { sent.Add(1) } })
	var lease driver.Lease
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("name-", i)
	}
	for _, c := range []struct {
		what string
		most int64
		call func() error
	}{
		{"acquire", 4, func() (err error) { lease, err = l.TryAcquire(t.Context(), request("n", "a")); return err }},
		{"renew", 2, func() (err error) { lease, err = l.Renew(t.Context(), lease); return err }},
		{"refused", 2, func() error {
			_, err := l.TryAcquire(t.Context(), request("n", "b"))
			if errors.Is(err, driver.ErrHeld) {
				err = nil
			}
			return err
		}},
		{"release", 2, func() error { return l.Release(t.Context(), lease) }},
		{"inspect 1,000", 1001, func() error { _, errs := l.InspectBatch(t.Context(), "", names); return errors.Join(errs...) }},
	} {
		sent.Store(0)
		began := time.Now()
		err := c.call()
		if err == nil && time.Since(began) > timePatience && sent.Load() > c.most {
			t.Logf("%s: %d requests to a slow server", c.what, sent.Load())
		} else if err != nil || sent.Load() != c.most {
			t.Errorf("%s: %d requests, want %d, %v", c.what, sent.Load(), c.most, err)
		}
	}
}

// A value is not older than its time by more than maxLead: a lease that was renewed meanwhile would seem to have ended. If the time comes
// late, the values are read once more, after it.
func TestTimeThatComesLate(t *testing.T) {
	t.Parallel()
	var timed atomic.Bool
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		switch m.subject {
		case "$JS.API.STREAM.INFO.KV_b":
			time.AfterFunc(maxLead, func() { timed.Store(true); c.empty(m) })
		case "$JS.API.STREAM.MSG.GET.KV_b":
			key, version := "k", 1
			if strings.Contains(m.text, "$KV.b.l") {
				key = "l"
			}
			if timed.Load() {
				version = 2
			}
			c.say(m.reply, fmt.Sprintf(`{"message":{"subject":"$KV.b.%s","seq":%d,"data":"eA=="}}`, key, version))
		}
	})
	values, err := openFake(t, f, "").store.GetBatch(t.Context(), []string{"k", "l"})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if v.Version != "2" || string(v.Data) != "x" || v.Now.IsZero() {
			t.Errorf("%+v was read before its time", v)
		}
	}
}

// A list has every key, over several pages, and those that a person has added by hand.
func TestList(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openAt(t, server.URL()+"/locks").store
	js := rawAt(t, server)
	kv := js.bucket("locks")
	const n = pageSize + 5
	for i := range n {
		if _, err := js.PublishAsync(s.subject(fmt.Sprintf("many.%04d", i)), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if _, err := kv.Put("OTHER", []byte("x")); err != nil { // no key of a lock
		t.Fatal(err)
	}
	var keys []string
	pages := 0
	for page := ""; pages == 0 || page != ""; pages++ {
		items, next, err := s.List(t.Context(), "many", page)
		if err != nil || len(items) > pageSize {
			t.Fatal(len(items), err)
		}
		for _, i := range items {
			keys = append(keys, i.Key)
		}
		page = next
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) != n || pages != 2 {
		t.Errorf("%d keys on %d pages", len(keys), pages)
	}
	if items, _, err := s.List(t.Context(), "none", ""); err != nil || len(items) != 0 {
		t.Errorf("%v, %v", items, err)
	}
}

// To look only, a user may read alone. Without a bucket all locks are free, and none is made.
func TestReading(t *testing.T) {
	t.Parallel()
	const reader = `{user: reader, password: "pw", permissions: { publish: ["$JS.API.STREAM.INFO.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks"],
		subscribe: "_INBOX.>" }}`
	server := natstest.Start(t, natstest.Users(reader), jetStream)
	rawURL := at(server.Addr(), "reader", "pw")
	l := openAt(t, rawURL, onlyReads)
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Errorf("%+v, %v", r, err)
	}
	for r, err := range l.List(t.Context(), "") {
		t.Errorf("%+v, %v", r, err)
	}
	if missing, err := driver.MissingStore(t.Context(), l); err != nil || missing != "the bucket locks" {
		t.Errorf("%q, %v", missing, err)
	}
	writer := openAt(t, server.URL()+"/locks")
	if _, err := writer.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	if missing, err := driver.MissingStore(t.Context(), l); err != nil || missing != "" {
		t.Errorf("%q, %v", missing, err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.Owner != "owner a" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err := l.TryAcquire(t.Context(), request("m", "a"))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), `publish to "$KV.locks.m"`) {
		t.Errorf("a write of a reader: %v", err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	openAt(t, server.URL()+"/locks")
	proxy := castest.NewProxy(t, server.Addr())
	s := openAt(t, natstest.At(proxy.Addr())+"/locks", onlyReads).store
	castest.RunWatch(t, castest.Watched{Store: s, Watch: s.watch, Cut: proxy.Cut, Limit: time.Minute})
}

// A change is reported with its value, a removal without one, and a write that is refused not at all.
func TestWatchReportsValues(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := openAt(t, server.URL()+"/locks").store
	kv := rawAt(t, server).bucket("locks")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reports, done := make(chan cas.Value, 10), make(chan error, 1)
	go func() { done <- s.watch(ctx, "k", func(v cas.Value) { reports <- v }) }()
	next := func() cas.Value {
		t.Helper()
		select {
		case v := <-reports:
			return v
		case err := <-done:
			t.Fatal(err)
		}
		return cas.Value{}
	}
	next()
	w, err := s.Put(ctx, "k", []byte("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	if v := next(); string(v.Data) != "1" || v.Version != w.Version {
		t.Errorf("%+v, want the version %s", v, w.Version)
	}
	if _, err := s.Put(ctx, "k", []byte("refused"), ""); !errors.Is(err, cas.ErrConflict) {
		t.Fatal(err)
	}
	if err := kv.Delete("k"); err != nil {
		t.Fatal(err)
	}
	if v := next(); v.Version != "" || v.Data != nil {
		t.Errorf("%+v for a removal", v)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
