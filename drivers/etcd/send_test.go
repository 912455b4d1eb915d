package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// nowhere is an address at which nothing listens.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// What a member refuses is lasting, or not, as etcd means it. Each lasting refusal says what helps.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	for _, c := range []struct {
		status  int
		message string
		lasting bool
		want    string
	}{
		{403, "etcdserver: permission denied", true, "grant-permission"},
		{400, "etcdserver: authentication failed, invalid user ID or password", true, "the password"},
		{400, "etcdserver: user name is empty", true, "demands a login"},
		{429, "etcdserver: mvcc: database space exceeded", false, "alarm disarm"}, // the write may have been done; see TestQuota
		{500, strings.Repeat("long ", 1000), false, "…"},
		{400, "etcdserver: request is too large", true, "max-request-bytes"},
		{429, "grpc: received message larger than max (5600010 vs. 2097152)", true, "max-request-bytes"},
		{400, "etcdserver: too many operations in txn request", true, "max-txn-ops"},
		{500, "etcdserver: corrupt cluster", true, "alarm list"},
		{503, "etcdserver: no leader", false, "no leader"},
		{503, "etcdserver: leader changed", false, "leader changed"},
		{503, "etcdserver: request timed out", false, "timed out"},
		{500, "context deadline exceeded", false, "deadline"},
		{429, "etcdserver: too many requests", false, "too many requests"},
		{400, "etcdserver: rpc not supported for learner", false, "learner"},
		{400, "etcdserver: not leader", false, "not leader"},
	} {
		f.refuse(pathTxn, c.status, c.message)
		f.refuse(pathRange, c.status, c.message)
		_, putErr := s.Put(t.Context(), "k", []byte("v"), "")
		_, getErr := s.Get(t.Context(), "k")
		for _, err := range []error{putErr, getErr} {
			if err == nil || errors.Is(err, driver.ErrDenied) != c.lasting || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("%s: %v, want %q, lasting: %v", c.message, err, c.want, c.lasting)
			}
		}
	}
	for _, c := range []struct {
		answer  reply
		lasting bool
		want    string
	}{
		{reply{status: 404, body: "404 page not found\n"}, true, "no JSON gateway"},
		{reply{status: 421, body: "\netcd received your request, but the Host header was unrecognized."}, true, "--host-whitelist"},
		{reply{status: 400, body: "CommonName of client sending a request against gateway will be ignored and not used as expected\n"}, true,
			"common name"},
		{reply{status: 502, body: "<html>secret</html>"}, false, "not that of etcd"},
		{reply{status: 503, body: "secret etcdserver: no leader, permission denied"}, false, "not that of etcd"}, // by a proxy
		{reply{status: 302, body: "secret"}, false, "not that of etcd"},
		{reply{body: "<html>secret</html>"}, false, "not that of etcd"},
		{reply{body: `{"succeeded": true}`}, false, "not that of etcd"}, // without a header
		{reply{body: strings.Repeat("x", 2000)}, false, "not that of etcd"},
	} {
		f.set(pathTxn, c.answer)
		f.set(pathRange, c.answer)
		_, putErr := s.Put(t.Context(), "k", []byte("v"), "")
		_, getErr := s.Get(t.Context(), "k")
		for _, err := range []error{putErr, getErr} {
			if err == nil || errors.Is(err, driver.ErrDenied) != c.lasting || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%d %.40q: %v, want %q, lasting: %v", c.answer.status, c.answer.body, err, c.want, c.lasting)
			}
		}
	}
	f.set(pathRange, reply{})
	f.set(pathTxn, reply{body: "{" + fakeHeader + "}"}) // refused, without the value
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || errors.Is(err, cas.ErrConflict) {
		t.Errorf("an answer without the value that has refused the write: %v", err)
	}
}

// A request goes to the next member only if the first one has certainly done nothing. A read does also if that is unknown.
func TestNextMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status        int
		message       string
		reads, writes bool // whether the next member is asked
	}{
		{503, "etcdserver: no leader", true, true},
		{503, "etcdserver: rpc not supported for learner", true, true},
		{503, "etcdserver: not capable", true, true},
		{404, "", true, true},
		{503, "etcdserver: request timed out", true, false},
		{500, "context deadline exceeded", true, false},
		{403, "etcdserver: permission denied", false, false},
		{429, "etcdserver: too many requests", false, false},
	} {
		first, second := startFake(t), startFake(t)
		s := storeAt(t, urlOf(first.addr(), second.addr()))
		if _, err := s.Get(t.Context(), "k"); err != nil { // the first member is known
			t.Fatal(err)
		}
		first.refuse(pathTxn, c.status, c.message)
		_, err := s.Put(t.Context(), "k", []byte("v"), "")
		if asked := second.requests(pathTxn) > 0; asked != c.writes || err == nil {
			t.Errorf("%q: the next member was asked to write: %v, %v", c.message, asked, err)
		}
		first.refuse(pathRange, c.status, c.message)
		before := second.requests(pathRange)
		s.members.stay(s.members.all[0])
		_, err = s.Get(t.Context(), "k")
		if asked := second.requests(pathRange) > before; asked != c.reads || (err == nil) != c.reads {
			t.Errorf("%q: the next member was asked to read: %v, %v", c.message, asked, err)
		}
	}
	for what, do := range map[string]func(){
		"the connection is cut": func() { panic(http.ErrAbortHandler) },
		"it is silent":          func() { time.Sleep(minTimeout * 3) },
	} {
		first, second := startFake(t), startFake(t)
		s := storeAt(t, urlOf(first.addr(), second.addr()), WithRequestTimeout(minTimeout*2))
		if _, err := s.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		first.set(pathTxn, reply{do: do})
		_, err := s.Put(t.Context(), "k", []byte("v"), "")
		if err == nil || driver.OutcomeKnown(err) || first.requests(pathTxn) != 1 || second.requests(pathTxn) != 0 {
			t.Errorf("%s: %d and %d writes, %v", what, first.requests(pathTxn), second.requests(pathTxn), err)
		}
		if s.members.current != 1 {
			t.Errorf("%s: the member is not left", what)
		}
		s.members.stay(s.members.all[0])
		first.set(pathRange, reply{do: do})
		if _, err := s.Get(t.Context(), "k"); err != nil || second.requests(pathRange) != 1 {
			t.Errorf("%s: the next member was asked %d times to read, %v", what, second.requests(pathRange), err)
		}
	}
	second := startFake(t)
	s := storeAt(t, urlOf(nowhere(t), second.addr()))
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); second.requests(pathTxn) != 1 || second.requests(pathRange) != 1 {
		t.Errorf("the first member is down: %d writes, and %d reads before them, %v", second.requests(pathTxn), second.requests(pathRange), err)
	}
	if _, err := s.Get(t.Context(), "k"); err != nil || s.members.current != 1 {
		t.Errorf("the member that has answered does not stay: %v", err)
	}
	s = storeAt(t, urlOf(nowhere(t), nowhere(t)))
	if _, err := s.Get(t.Context(), "k"); err == nil || driver.Lasting(err) || strings.Count(err.Error(), "refused") != 2 {
		t.Errorf("all members are down: %v", err)
	}
	// What one member refuses for good lasts only if no other one may do it later.
	gateless := startFake(t)
	gateless.set(pathRange, reply{status: 404, body: "404 page not found\n"})
	for url, lasting := range map[string]bool{urlOf(gateless.addr()): true, urlOf(gateless.addr(), nowhere(t)): false,
		urlOf(nowhere(t), gateless.addr()): false} {
		if _, err := storeAt(t, url).Get(t.Context(), "k"); err == nil || driver.Lasting(err) != lasting {
			t.Errorf("%s: %v, want one that lasts: %v", url, err, lasting)
		}
	}
}

// Each request is made once, whatever comes of it.
func TestOnce(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []reply{{status: 503, body: `{"message": "etcdserver: leader changed"}`}, {status: 307}, {status: 429},
		{body: "{}"}, {do: func() { panic(http.ErrAbortHandler) }}} {
		f.set(pathTxn, answer)
		before := f.requests(pathTxn)
		if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || f.requests(pathTxn) != before+1 {
			t.Errorf("%d: %d requests, %v", answer.status, f.requests(pathTxn)-before, err)
		}
	}
}

// A member that is paused costs its callers one time limit at most, and then another one is asked. Also calls with short limits leave it.
func TestPausedMember(t *testing.T) {
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	leader := leaderOf(t, all)
	var follower *etcdtest.Server
	for _, s := range all {
		if s != leader {
			follower = s
		}
	}
	order := []*etcdtest.Server{follower}
	for _, s := range all {
		if s != follower {
			order = append(order, s)
		}
	}
	l := openAt(t, etcdtest.URLOf(order...), WithRequestTimeout(2*time.Second))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Errorf("a renewal beside a paused member: %v", err)
	}
	if took := time.Since(began); took < 2*time.Second || l.store.members.all[l.store.members.current].name == follower.Addr() {
		t.Errorf("the renewal took %v, and the member is %s", took, l.store.members.all[l.store.members.current].name)
	}
	l.store.members.stay(l.store.members.all[0]) // the paused one again
	for end := time.Now().Add(20 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		_, err = l.Renew(ctx, lease)
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Errorf("calls with a short time limit stay at the paused member: %v", err)
			break
		}
	}
	// Opening does not wait for it for long.
	began = time.Now()
	second := openAt(t, etcdtest.URLOf(order...), WithRequestTimeout(30*time.Second))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("opening beside a paused member took %v", took)
	}
	if _, err := second.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if err := follower.Resume(); err != nil {
		t.Fatal(err)
	}
}

// A member is left that is silent to a caller with a short limit. One that had no time to answer is not.
func TestSilentMember(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	for limit, left := range map[time.Duration]bool{patience + 100*time.Millisecond: true, patience / 5: false} {
		first, second := startFake(t), startFake(t)
		s := storeAt(t, urlOf(first.addr(), second.addr()), WithRequestTimeout(maxTimeout))
		if _, err := s.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		first.set(pathTxn, reply{do: func() { <-over }})
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := s.Put(ctx, "k", []byte("v"), "")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), first.addr()) || (s.members.current == 1) != left {
			t.Errorf("after %v: %v, and the member is left: %v", limit, err, !left)
		}
	}
	close(over)
}

// Without a majority a call fails soon, and is certain to have done nothing: the member knows no leader. With it all goes on.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	l := openAt(t, etcdtest.URLOf(all...), WithRequestTimeout(2*time.Second))
	if err := errors.Join(all[1].Kill(), all[2].Kill()); err != nil {
		t.Fatal(err)
	}
	var err error
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = l.store.Put(t.Context(), "k", []byte("v"), ""); err != nil && strings.Contains(err.Error(), "no leader") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a member without a majority: %v", err)
		}
	}
	if driver.Lasting(err) {
		t.Errorf("it lasts: %v", err)
	}
	began := time.Now()
	if _, err := l.Inspect(t.Context(), "n"); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("took %v: %v", time.Since(began), err)
	}
	if err := errors.Join(all[1].Restart(context.WithoutCancel(t.Context())), all[2].Restart(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		lease, err := l.TryAcquire(t.Context(), request("n", "a"))
		if err == nil {
			err = l.Release(t.Context(), lease)
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("with a majority: %v", err)
		}
	}
}

// A call ends with its context, although the member does not answer, and so does Close.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, etcdtest.Start(t).Addr())
	l, err := Open(t.Context(), urlOf(proxy.Addr()), WithRequestTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Set(castest.Stall)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	began := time.Now()
	if _, err := l.TryAcquire(ctx, request("n", "a")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	closing, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_ = l.Close(closing)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrClosed) {
		t.Error(err)
	}
}

// Through a network that loses, delays and doubles, every call is true or unknown, and two clients never hold one lock.
func TestFaultyNetwork(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, etcdtest.Start(t).Addr())
	ctx, stop := context.WithCancel(t.Context())
	var faults sync.WaitGroup
	faults.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			proxy.Set([]castest.Mode{castest.LoseAnswers, castest.Pass, castest.Double, castest.Stall, castest.Pass, castest.Refuse}[i%6])
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		proxy.Set(castest.Pass)
	})
	var holder, grants atomic.Int64
	var last atomic.Uint64
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			mine, err := Open(t.Context(), urlOf(proxy.Addr()), WithRequestTimeout(300*time.Millisecond), onlyReads)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = mine.Close(context.WithoutCancel(t.Context())) }()
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
				req := request("n", fmt.Sprint(i, "-", time.Now().UnixNano()))
				lease, err := mine.TryAcquire(t.Context(), req)
				if err != nil {
					if !errors.Is(err, driver.ErrHeld) { // it may be held without an answer
						release(t, mine, driver.Lease{Name: "n", ID: req.ID})
					}
					continue
				}
				grants.Add(1)
				if !holder.CompareAndSwap(0, int64(i+1)) {
					t.Errorf("two holders: %d and %d", holder.Load(), i+1)
				}
				if before := last.Swap(lease.Token); lease.Token <= before {
					t.Errorf("token %d after %d", lease.Token, before)
				}
				holder.Store(0)
				release(t, mine, lease)
			}
		})
	}
	clients.Wait()
	stop()
	faults.Wait()
	if grants.Load() < 10 {
		t.Errorf("%d grants", grants.Load())
	}
}

// release repeats a release until its outcome is known.
func release(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	for l.Release(t.Context(), lease) != nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
