package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/etcdtest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, startWithLogin(t, "--auth-token-ttl=1").Addr())
	s := storeAt(t, "etcd://"+appUser+":"+appPassword+"@"+proxy.Addr())
	castest.RunWatch(t, castest.Watched{Store: s, Watch: s.watch, Cut: proxy.Cut, Limit: time.Minute})
}

// follow calls watch until the test ends, again after an error, as a Locker does.
func follow(t *testing.T, s *store, key string) (reports <-chan cas.Value) {
	t.Helper()
	all := make(chan cas.Value, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(cancel)
	work.Go(func() {
		for ctx.Err() == nil {
			_ = s.watch(ctx, key, func(v cas.Value) { all <- v })
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return all
}

// next returns the next report.
func next(t *testing.T, reports <-chan cas.Value) cas.Value {
	t.Helper()
	select {
	case v := <-reports:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is reported")
		return cas.Value{}
	}
}

// A change is reported with its value, and a deletion without one.
func TestWatchReportsValues(t *testing.T) {
	t.Parallel()
	s := storeAt(t, etcdtest.URL(t))
	reports := follow(t, s, "k")
	if v := next(t, reports); v.Version != "" {
		t.Errorf("the first report has a value: %+v", v)
	}
	w, err := s.Put(t.Context(), "k", []byte("value"), "")
	if err != nil {
		t.Fatal(err)
	}
	if v := next(t, reports); string(v.Data) != "value" || v.Version != w.Version {
		t.Errorf("%+v, want the version %s", v, w.Version)
	}
	if _, err := s.Put(t.Context(), "other", []byte("value"), ""); err != nil {
		t.Fatal(err)
	}
	if err := s.ask(t.Context(), call{method: methodDeleteRange, body: rangeRequest{Key: []byte(s.key("k"))}}, &headed{}); err != nil {
		t.Fatal(err)
	}
	if v := next(t, reports); v.Version != "" || v.Data != nil {
		t.Errorf("the deletion has %+v", v)
	}
}

// A watch whose member is killed, or paused, begins anew at another member.
func TestWatchMoves(t *testing.T) {
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	s := storeAt(t, etcdtest.URLOf(all...), WithRequestTimeout(2*time.Second))
	reports := follow(t, s, "k")
	next(t, reports)
	write := func(text string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			v, err := s.Get(t.Context(), "k")
			if err == nil {
				_, err = s.Put(t.Context(), "k", []byte(text), v.Version)
			}
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	shows := func(text string) {
		t.Helper()
		write(text)
		for { // the first report may be that of a watch that begins anew
			v := next(t, reports)
			if v.Version == "" {
				if now, err := s.Get(t.Context(), "k"); err == nil {
					v = now
				}
			}
			if string(v.Data) == text {
				return
			}
		}
	}
	shows("first")
	if err := all[0].Kill(); err != nil {
		t.Fatal(err)
	}
	shows("second")
	if err := all[0].Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, one := range all {
		if s.members.all[s.members.current].name == one.Addr() {
			if err := one.Pause(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = all[i].Resume() }()
			break
		}
	}
	shows("third")
}

// A member without a majority ends a watch: it would report nothing.
func TestWatchWithoutAMajority(t *testing.T) {
	t.Parallel()
	all := etcdtest.StartCluster(t, 3)
	s := storeAt(t, all[0].URL(), WithRequestTimeout(10*time.Second))
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- s.watch(ctx, "k", func(cas.Value) { began <- struct{}{} }) }()
	<-began
	if err := errors.Join(all[1].Kill(), all[2].Kill()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; ctx.Err() != nil || err == nil {
		t.Errorf("the watch goes on: %v", err)
	}
}

// A process watches so many keys at a time. The waiters for others poll, until a place is free.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	s := storeAt(t, etcdtest.URL(t))
	ctx, cancel := context.WithCancel(t.Context())
	var work, began sync.WaitGroup
	for i := range maxStreams {
		began.Add(1)
		var once sync.Once
		work.Go(func() { _ = s.watch(ctx, fmt.Sprint("k", i), func(cas.Value) { once.Do(began.Done) }) })
	}
	began.Wait()
	if err := s.watch(t.Context(), "more", func(cas.Value) { t.Error("it has begun") }); !errors.Is(err, errManyStreams) {
		t.Error(err)
	}
	cancel()
	work.Wait()
	next(t, follow(t, s, "more"))
}

// A watch that the member does not begin ends, and so does one that it refuses. Neither is reported as in effect.
func TestWatchThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := storeAt(t, urlOf(f.addr()), WithRequestTimeout(300*time.Millisecond))
	for what, answer := range map[string]reply{
		"canceled":        {message: appendBytes(appendFlag(appendFlag(from(7), 3, true), 4, true), 6, []byte("permission denied"))},
		"an error":        {status: 14, text: "etcdserver: no leader"},
		"not found":       {raw: html(404, "text/plain", "404 page not found")},
		"not etcd":        {raw: html(200, "text/html", "<html>")},
		"no frame":        {raw: html(200, contentType, "<html>")},
		"a broken frame":  {raw: html(200, contentType, string(frameOf(from(7))[:9]))},
		"a broken answer": {message: from(7)[:5]},
		"the end": {raw: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Grpc-Status", "0")
		}},
		"another cluster": {message: appendFlag(from(70), 3, true)},
		"silence":         {do: func() { <-over }},
		"compacted":       {message: appendSet(appendFlag(from(7), 4, true), 5, 4)},
	} {
		f.set(methodWatch, answer)
		if err := s.watch(ctx, "k", func(cas.Value) { t.Errorf("%s: it is in effect", what) }); err == nil || ctx.Err() != nil {
			t.Errorf("%s: the watch has ended with %v", what, err)
		}
	}
}

// A release wakes a waiter at once, long before it would poll. So does the removal of the record.
func TestReleaseWakes(t *testing.T) {
	t.Parallel()
	l := openAt(t, etcdtest.URL(t))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	began, woken := make(chan struct{}, 100), make(chan struct{}, 100)
	defer l.Wake("n", "", func(up driver.Wakeup) {
		switch up.Kind {
		case driver.WakingBegan:
			began <- struct{}{}
		case driver.MayBeFree:
			woken <- struct{}{}
		}
	})()
	<-began
	for len(woken) > 0 {
		<-woken
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Error("the release has woken nobody")
	}
}

// A waiter that watches takes a dead holder's lock over one TTL after the last renewal, not after its own next poll.
func TestTakeover(t *testing.T) {
	serverprocess.Long(t, "waits for the end of a lease")
	t.Parallel()
	rawURL := etcdtest.URL(t)
	l := openAt(t, rawURL)
	req := request("n", "dead")
	req.TTL = 10 * time.Second
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	client, err := holdfast.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Shutdown(context.WithoutCancel(t.Context())) }()
	granted := make(chan error, 1)
	go func() {
		_, err := client.Lock(t.Context(), "n")
		granted <- err
	}()
	time.Sleep(2 * time.Second) // it waits, and watches
	renewed := time.Now()
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	err = <-granted
	if took := time.Since(renewed); err != nil || took < req.TTL || took > req.TTL*3/2 {
		t.Errorf("granted %v after the last renewal, %v", took, err)
	}
}
