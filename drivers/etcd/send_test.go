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
		{7, "etcdserver: permission denied", true, "grant-permission"},
		{3, "etcdserver: authentication failed, invalid user ID or password", true, "the password"},
		{3, "etcdserver: user name is empty", true, "demands a login"},
		{8, "etcdserver: mvcc: database space exceeded", false, "alarm disarm"}, // the write may have been done; see TestQuota
		{2, strings.Repeat("long ", 1000), false, "…"},
		{2, "100 %\nof it", false, "100 % of it"},
		{3, "etcdserver: request is too large", true, "max-request-bytes"},
		{8, "grpc: received message larger than max (5600010 vs. 2097152)", true, "max-request-bytes"},
		{3, "etcdserver: too many operations in txn request", true, "max-txn-ops"},
		{15, "etcdserver: corrupt cluster", true, "alarm list"},
		{14, "etcdserver: no leader", false, "no leader"},
		{14, "etcdserver: leader changed", false, "leader changed"},
		{14, "etcdserver: request timed out", false, "timed out"},
		{4, "context deadline exceeded", false, "deadline"},
		{8, "etcdserver: too many requests", false, "too many requests"},
		{9, "etcdserver: rpc not supported for learner", false, "learner"},
		{9, "etcdserver: not leader", false, "not leader"},
		{12, "unknown service etcdserverpb.KV", true, "3.4 or later"},
		{12, "no route", false, "a proxy"},
		{14, "permission denied", false, "permission denied"}, // of a proxy, and so is the next one
		{14, "authentication failed", false, "authentication failed"},
		{14, "", false, "gRPC status 14"}, // by a proxy
	} {
		f.refuse(methodTxn, c.status, c.message)
		f.refuse(methodRange, c.status, c.message)
		_, putErr := s.Put(t.Context(), "k", []byte("v"), "")
		_, getErr := s.Get(t.Context(), "k")
		for _, err := range []error{putErr, getErr} {
			if err == nil || errors.Is(err, driver.ErrDenied) != c.lasting || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("%s: %v, want %q, lasting: %v", c.message, err, c.want, c.lasting)
			}
		}
	}
	f.set(methodRange, reply{})
	f.set(methodTxn, reply{}) // refused, without the value
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || errors.Is(err, cas.ErrConflict) {
		t.Errorf("an answer without the value that has refused the write: %v", err)
	}
}

// A request goes to the next member only if the first one has certainly done nothing. A read does also if that is unknown.
func TestNextMember(t *testing.T) {
	t.Parallel()
	type row struct {
		status        int
		message       string
		reads, writes bool // whether the next member is asked
	}
	rows := []row{
		{14, "etcdserver: no leader", true, true},
		{9, "etcdserver: rpc not supported for learner", true, true},
		{14, "etcdserver: not capable", true, true},
		{12, "unknown method", true, true},
		{12, "no route", true, true},
		{14, "permission denied", true, false}, // of a proxy
		{7, "etcdserver: permission denied", false, false},
	}
	for _, status := range []int{1, 2, 4, 6, 10, 13, 14, 15, 99} { // the write may have been done
		rows = append(rows, row{status, fmt.Sprint("etcdserver: status ", status), true, false})
	}
	for _, status := range []int{3, 5, 7, 8, 9, 11, 16} { // every member will say so
		rows = append(rows, row{status, fmt.Sprint("etcdserver: status ", status), false, false})
	}
	for _, c := range rows {
		first, second := startFake(t), startFake(t)
		s := storeAt(t, urlOf(first.addr(), second.addr()))
		if _, err := s.Get(t.Context(), "k"); err != nil { // the first member is known
			t.Fatal(err)
		}
		first.refuse(methodTxn, c.status, c.message)
		_, err := s.Put(t.Context(), "k", []byte("v"), "")
		if asked := second.requests(methodTxn) > 0; asked != c.writes || err == nil {
			t.Errorf("%q: the next member was asked to write: %v, %v", c.message, asked, err)
		}
		first.refuse(methodRange, c.status, c.message)
		before := second.requests(methodRange)
		s.members.stay(s.members.all[0])
		_, err = s.Get(t.Context(), "k")
		if asked := second.requests(methodRange) > before; asked != c.reads || (err == nil) != c.reads {
			t.Errorf("%q: the next member was asked to read: %v, %v", c.message, asked, err)
		}
	}
	for what, c := range map[string]struct {
		do    func(*fake)
		limit time.Duration // of a request, and so of the next member's answer on a busy machine
	}{
		"the stream is reset":   {func(*fake) { panic(http.ErrAbortHandler) }, time.Minute},
		"the connection is cut": {func(f *fake) { f.CloseClientConnections() }, time.Minute},
		"it is silent":          {func(*fake) { time.Sleep(3 * time.Second) }, 2 * time.Second},
	} {
		first, second := startFake(t), startFake(t)
		s := storeAt(t, urlOf(first.addr(), second.addr()), WithRequestTimeout(c.limit))
		if _, err := s.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		first.set(methodTxn, reply{do: func() { c.do(first) }})
		_, err := s.Put(t.Context(), "k", []byte("v"), "")
		if err == nil || driver.OutcomeKnown(err) || first.requests(methodTxn) != 1 || second.requests(methodTxn) != 0 {
			t.Errorf("%s: %d and %d writes, %v", what, first.requests(methodTxn), second.requests(methodTxn), err)
		}
		if s.members.current != 1 {
			t.Errorf("%s: the member is not left", what)
		}
		s.members.stay(s.members.all[0])
		first.set(methodRange, reply{do: func() { c.do(first) }})
		if _, err := s.Get(t.Context(), "k"); err != nil || second.requests(methodRange) != 1 {
			t.Errorf("%s: the next member was asked %d times to read, %v", what, second.requests(methodRange), err)
		}
	}
	second := startFake(t)
	s := storeAt(t, urlOf(nowhere(t), second.addr()))
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); second.requests(methodTxn) != 1 || second.requests(methodRange) != 1 {
		t.Errorf("the first member is down: %d writes, and %d reads before them, %v", second.requests(methodTxn),
			second.requests(methodRange), err)
	}
	if _, err := s.Get(t.Context(), "k"); err != nil || s.members.current != 1 {
		t.Errorf("the member that has answered does not stay: %v", err)
	}
	s = storeAt(t, urlOf(nowhere(t), nowhere(t)))
	if _, err := s.Get(t.Context(), "k"); err == nil || driver.Lasting(err) || strings.Count(err.Error(), "refused") != 2 {
		t.Errorf("all members are down: %v", err)
	}
	// What one member refuses for good lasts only if no other one may do it later.
	old := startFake(t)
	old.refuse(methodRange, statusUnimplemented, "unknown service etcdserverpb.KV")
	for url, lasting := range map[string]bool{urlOf(old.addr()): true, urlOf(old.addr(), nowhere(t)): false,
		urlOf(nowhere(t), old.addr()): false} {
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
	for what, answer := range map[string]reply{
		"unknown": {status: 14, text: "etcdserver: leader changed"}, "refused": {status: 8}, "no header": {message: []byte{}},
		"redirected": {raw: func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		"reset": {do: func() { panic(http.ErrAbortHandler) }}, "cut": {do: f.CloseClientConnections},
	} {
		f.set(methodTxn, answer)
		before := f.requests(methodTxn)
		if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || f.requests(methodTxn) != before+1 {
			t.Errorf("%s: %d requests, %v", what, f.requests(methodTxn)-before, err)
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
		first.set(methodTxn, reply{do: func() { <-over }})
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		began := time.Now()
		_, err := s.Put(ctx, "k", []byte("v"), "")
		cancel()
		left = left || time.Since(began) >= patience // on a busy machine
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), first.addr()) || (s.members.current == 1) != left {
			t.Errorf("after %v: %v, and the member is left: %v", limit, err, !left)
		}
	}
	close(over)
}

// An answer shows that the connections are alive: the silence before it does not count any more.
func TestAnswerEndsSilence(t *testing.T) {
	t.Parallel()
	s := storeAt(t, urlOf(startFake(t).addr()))
	used := s.members.all[0].connections
	if silent := used.unanswered(time.Now().Add(-time.Hour)); silent < time.Hour {
		t.Errorf("no answer has come for %v", silent)
	}
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if silent := used.unanswered(time.Now()); silent > time.Minute {
		t.Errorf("no answer has come for %v", silent)
	}
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
			mode := []castest.Mode{castest.LoseAnswers, castest.Pass, castest.Double, castest.Stall, castest.Pass, castest.Refuse}[i%6]
			if proxy.Set(mode); mode == castest.Double { // which concerns new connections alone
				proxy.Cut()
			}
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
			for begun := time.Now(); time.Since(begun) < 4*time.Second || grants.Load() < 10; {
				if time.Since(begun) > time.Minute {
					t.Errorf("%d grants", grants.Load())
					return
				}
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
}

// release repeats a release until its outcome is known.
func release(t *testing.T, l *Locker, lease driver.Lease) {
	t.Helper()
	for l.Release(t.Context(), lease) != nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}
