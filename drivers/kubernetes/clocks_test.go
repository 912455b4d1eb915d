package kubernetes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// A stamp that is later than the reading server's time says that the clocks of the servers disagree.
func TestClocksOfServersDisagree(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	server.SetStamps(func() time.Time { return clock.Now().Add(20 * time.Second) })
	acquire(t, l, "op", "a", 10*time.Second)
	v, err := l.store.Get(t.Context(), "op")
	if err != nil || !v.Unsure {
		t.Errorf("a stamp of the future is not noticed: %v", err)
	}
	clock.Advance(30 * time.Second)
	if v, err = l.store.Get(t.Context(), "op"); err != nil || v.Unsure {
		t.Errorf("a stamp of the past counts as one of the future: %v", err)
	}
}

// The stamps of a server that is behind are noticed by a process that uses another one only, also if a Lease was made meanwhile.
// By them a lease would seem to have ended.
func TestServerBehind(t *testing.T) {
	t.Parallel()
	for behind, want := range map[time.Duration]bool{0: false, 4 * time.Second: false, 20 * time.Second: true} {
		l, server, clock := fixed(t)
		waiter := open(t, server.URL(t), func(c *settings) { c.elapsed = l.store.clocks.Elapsed })
		first, err := waiter.store.Get(t.Context(), "op")
		if err != nil || first.Unsure {
			t.Fatal(first.Unsure, err)
		}
		server.SetClock(func() time.Time { return clock.Now().Add(-behind) })
		acquire(t, l, "op", "a", 10*time.Second)
		server.SetClock(clock.Now)
		clock.Advance(time.Second)
		if v, err := waiter.store.Get(t.Context(), "op"); err != nil || v.Unsure != want {
			t.Errorf("%v behind: unsure %v, %v", behind, v.Unsure, err)
		}
		if _, err := try(t, waiter, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%v behind: a second holder: %v", behind, err)
		}
		clock.Advance(httpstore.Distrust)
		// What is old was not written after the last read.
		for range 2 {
			if v, err := waiter.store.Get(t.Context(), "op"); err != nil || v.Unsure {
				t.Errorf("%v behind: after %v it is still unsure, %v", behind, httpstore.Distrust, err)
			}
		}
	}
}

// A write that only removes fields leaves the stamps of the writes before, which say nothing of a clock then.
func TestRemovedFields(t *testing.T) {
	t.Parallel()
	for what, patch := range map[string]string{"kubectl frees the lock": `{"spec": {"holderIdentity": null}}`,
		"a label": `{"metadata": {"labels": {"` + label + `": null}}}`} {
		l, server, clock := fixed(t)
		acquire(t, l, "op", "a", 30*time.Second)
		clock.Advance(8 * time.Second)
		for range 2 {
			if v, err := l.store.Get(t.Context(), "op"); err != nil || v.Unsure || l.store.clocks.Disagree() {
				t.Errorf("%s: unsure %v, disagree %v, %v", what, v.Unsure, l.store.clocks.Disagree(), err)
			}
			if err := server.Edit("op", patch); err != nil {
				t.Fatal(err)
			}
			clock.Advance(time.Second)
		}
	}
}

// What two answers of servers whose clocks differ have shown counts for all Leases.
func TestAnswersOfTwoServers(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	acquire(t, l, "op", "a", 10*time.Second)
	server.SetClock(func() time.Time { return clock.Now().Add(15 * time.Second) })
	if _, err := try(t, l, "op", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("by the clock of a server that is ahead: %v", err)
	}
}

// A later page shows what there was when the first one was read, and is judged by the time of that. After its token has expired the list
// goes on with what there is.
func TestTimeOfPages(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	for i := range 2*pageSize + 1 {
		if err := server.Create(fmt.Sprintf("n%04d", i), fmt.Sprintf(`{"metadata": {"labels": {%q: "true"}}}`, label)); err != nil {
			t.Fatal(err)
		}
	}
	first, expires := clock.Now(), false
	server.SetFaults(func(kubernetestest.Request) kubernetestest.Fault { return kubernetestest.Fault{Expired: expires} })
	page, seen := "", 0
	read := func(want time.Time) {
		t.Helper()
		items, next, err := l.store.List(t.Context(), "", page)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if !item.Now.Equal(want.Truncate(time.Second)) || item.Unsure {
				t.Fatalf("%s: %v, want %v; unsure %v", item.Key, item.Now, want, item.Unsure)
			}
		}
		page, seen = next, seen+len(items)
		clock.Advance(time.Minute)
	}
	read(first)
	read(first)
	expires = true
	read(first)
	expires = false
	read(clock.Now())
	if page != "" || seen != 2*pageSize+1 {
		t.Errorf("%d items, the next page is %q", seen, page)
	}
}
