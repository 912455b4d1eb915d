package nats

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// Servers that are no cluster have locks of their own each: their URL is refused, by doctor too, and so is such a connection of a program.
// A cluster of which one server is down is none of that.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	one, two := natstest.Start(t), natstest.Start(t)
	rawURL := natstest.URLOf(one, two) + "/locks"
	_, err := Open(t.Context(), rawURL)
	wantDenied(t, "two servers", err, true, "no cluster")
	_, err = driver.OpenForCheck(t.Context(), rawURL)
	wantDenied(t, "two servers, for doctor", err, true, "no cluster")
	conn := admin(t, natstest.At(one.Addr())+","+natstest.At(two.Addr()))
	_, err = New(t.Context(), conn, "locks")
	wantDenied(t, "a connection of two servers", err, true, "no cluster")
	openAt(t, natstest.URLOf(one, one)+"/locks") // one server, named twice
	cluster := natstest.StartCluster(t, 3)
	if l := openCluster(t, natstest.At(nowhere(t)+","+cluster[0].Addr())+"/locks"); present(l).nc.ConnectedAddr() != cluster[0].Addr() {
		t.Error(present(l).nc.ConnectedAddr())
	}
}

// A fake whose stream says another time of creation, or another domain.
func TestOtherBucket(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ created, domain, want string }{
		"made anew":      {"2026-05-05T05:05:05Z", "", "2026-05-05T05:05:05Z"},
		"another domain": {created, "leaf", `in the JetStream domain "leaf"`},
	} {
		other := false
		var mu sync.Mutex
		f := startFake(t, greeting, func(conn *fakeConn, m fakeMessage) {
			mu.Lock()
			defer mu.Unlock()
			if other && m.subject == "$JS.API.STREAM.INFO.KV_b" {
				conn.say(m.reply, fmt.Sprintf(infoOf, c.created, c.domain, time.Now().Format(time.RFC3339Nano)))
			} else if m.reply != "" {
				conn.empty(m)
			}
		})
		l := openFake(t, f, "")
		if _, err := l.store.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		other = true
		mu.Unlock()
		_, err := l.store.Get(t.Context(), "k")
		wantDenied(t, what+", a read", err, true, c.want)
		_, err = l.store.Put(t.Context(), "k", []byte("x"), "3")
		wantDenied(t, what+", a write", err, false, c.want) // it was done, somewhere
		_, _, err = l.store.List(t.Context(), "", "")
		wantDenied(t, what+", a list", err, true, c.want)
	}
}

// A write that another domain has stored is none of the bucket.
func TestDomainOfAnAcknowledgement(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		switch {
		case m.subject == "$JS.API.STREAM.INFO.KV_b":
			c.say(m.reply, fmt.Sprintf(infoOf, created, "hub", time.Now().Format(time.RFC3339Nano)))
		case m.subject == "$KV.b.own":
			c.say(m.reply, `{"stream":"KV_b","domain":"hub","seq":7}`)
		case m.subject == "$KV.b.leaf":
			c.say(m.reply, `{"stream":"KV_b","domain":"leaf","seq":7}`)
		case m.reply != "":
			c.empty(m)
		}
	})
	l := openFake(t, f, "")
	if _, err := l.store.Get(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Put(t.Context(), "own", nil, ""); err != nil {
		t.Errorf("the own domain: %v", err)
	}
	for key, want := range map[string]string{"leaf": `domain "leaf"`, "none": "in no JetStream domain"} {
		_, err := l.store.Put(t.Context(), key, nil, "")
		wantDenied(t, key, err, false, want)
	}
}

// After a write the time is waited for only briefly. Without it a renewal is made again after a read, and on a connection that was not yet
// seen to lead to the bucket, the write counts as unknown.
func TestTimeThatDoesNotCome(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	slow := false
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		mu.Lock()
		defer mu.Unlock()
		if m.reply != "" && (!slow || m.subject != "$JS.API.STREAM.INFO.KV_b") {
			c.empty(m)
		}
	})
	l := openFake(t, f, "?requestTimeout=1m")
	if _, err := l.store.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	slow = true
	mu.Unlock()
	began := time.Now()
	w, err := l.store.Put(t.Context(), "k", nil, "")
	if took := time.Since(began); err != nil || w.Version != "7" || !w.Now.IsZero() || took > 30*time.Second {
		t.Errorf("%+v, %v after %v", w, err, took)
	}
	ended := present(l).ended
	closeConn(present(l))
	<-ended
	_, err = l.store.Put(t.Context(), "k", nil, "")
	wantDenied(t, "a new connection", err, false, "perhaps elsewhere")
	if f.connections() != 2 {
		t.Errorf("%d connections", f.connections())
	}
}

// A bucket that was deleted and made anew while programs run is refused: its locks are gone, and the version of a record could come again.
func TestBucketOfARunningProgram(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	l := openAt(t, server.URL()+"/locks")
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := rawAt(t, server).DeleteKeyValue("locks"); err != nil {
		t.Fatal(err)
	}
	other := openAt(t, server.URL()+"/locks")
	if _, err := other.TryAcquire(t.Context(), request("n", "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(t.Context(), lease); err == nil || !strings.Contains(err.Error(), "another one now") {
		t.Errorf("a renewal: %v", err)
	}
	_, err = l.TryAcquire(t.Context(), request("m", "a"))
	wantDenied(t, "a request", err, true, "another one now")
}
