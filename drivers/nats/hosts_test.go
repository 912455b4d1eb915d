package nats

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"2.11.0": true, "2.15.3-RC.1": true, "3.0.0": true, "2.10.29": false, "1.99.0": false,
		"": false, "2": false, "x.y": false} {
		if atLeast(version, oldestInCluster) != want {
			t.Errorf("%q is 2.11 or later: %v", version, !want)
		}
	}
}

func inCluster(version string) string {
	return fmt.Sprintf(`INFO {"server_id":"x","version":%q,"proto":1,"headers":true,"max_payload":8388608,"cluster":"c"}`+"\r\n", version)
}

// A cluster before 2.11 may store writes that it has refused. A server alone does not.
func TestOldCluster(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), startFake(t, inCluster("2.10.29"), nil).url())
	wantDenied(t, "a cluster", err, true, "Use NATS 2.11 or later")
	openFake(t, startFake(t, strings.Replace(greeting, "2.15.0", "2.10.29", 1), nil), "")
	openFake(t, startFake(t, inCluster("2.11.0"), nil), "")
}

// Servers of two clusters have buckets of their own: a URL that names both is refused, whichever is reached first.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	one := startFake(t, inCluster("2.15.3"), nil)
	another := startFake(t, inCluster("2.15.3"), func(c *fakeConn, m fakeMessage) {
		if m.subject == "$JS.API.STREAM.INFO.KV_b" {
			c.say(m.reply, fmt.Sprintf(infoOf, "2026-05-05T05:05:05Z", "", time.Now().Format(time.RFC3339Nano)))
		} else if m.reply != "" {
			c.empty(m)
		}
	})
	_, err := Open(t.Context(), "nats://"+one.addr+","+another.addr+"/b")
	wantDenied(t, "another bucket", err, true, "name those of one cluster alone")
	without := startFake(t, inCluster("2.15.3"), func(c *fakeConn, m fakeMessage) {
		if m.reply != "" {
			c.say(m.reply, `{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`)
		}
	})
	l := openFake(t, one, "")
	for what, c := range map[string]struct{ addr, want string }{
		"no bucket": {without.addr, without.addr + " has no bucket b"}, "no cluster": {startFake(t, greeting, nil).addr, "belongs to no cluster"},
		"an old one": {startFake(t, inCluster("2.10.29"), nil).addr, "Use NATS 2.11 or later"},
	} {
		l.store.link.options.Servers = []string{"nats://" + one.addr, "nats://" + c.addr}
		wantDenied(t, what, l.store.compareHosts(t.Context()), true, c.want)
	}
	l.store.link.options.Servers = []string{"nats://" + one.addr, "nats://" + nowhere(t)}
	if err := l.store.compareHosts(t.Context()); err != nil {
		t.Errorf("one of them is down: %v", err)
	}
}

// A bucket that somebody changes while programs run, so that it would forget locks, is refused from then on.
func TestBucketThatIsChanged(t *testing.T) {
	t.Parallel()
	var changed atomic.Bool
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if changed.Load() && m.subject == "$JS.API.STREAM.INFO.KV_b" {
			c.say(m.reply, fmt.Sprintf(strings.Replace(infoOf, `{"name"`, `{"max_age":60000000000,"name"`, 1), created, "",
				time.Now().Format(time.RFC3339Nano)))
		} else if m.reply != "" {
			c.empty(m)
		}
	})
	l := openFake(t, f, "")
	if _, err := l.store.Put(t.Context(), "k", nil, ""); err != nil {
		t.Fatal(err)
	}
	changed.Store(true)
	const want = "its keys expire"
	if _, err := l.store.Get(t.Context(), "k"); !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), want) {
		t.Errorf("a read: %v", err)
	}
	if _, _, err := l.store.List(t.Context(), "", ""); !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), want) {
		t.Errorf("a list: %v", err)
	}
	_, err := l.store.Put(t.Context(), "k", nil, "3")
	if err == nil || driver.Lasting(err) || !strings.Contains(err.Error(), want) { // it was done
		t.Errorf("a write: %v", err)
	}
}
