package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// openFake opens the bucket of a fake, without trying its conditional writes.
func openFake(t *testing.T, f *fake, parameters string) *Locker {
	t.Helper()
	return openAt(t, f.url()+parameters, onlyReads)
}

// result is what a Put returns.
type result struct {
	w   cas.Written
	err error
}

// put writes a key in the background.
func put(ctx context.Context, l *Locker, key string) <-chan result {
	done := make(chan result, 1)
	go func() {
		w, err := l.store.Put(ctx, key, []byte("x"), "")
		done <- result{w, err}
	}()
	return done
}

func wantDenied(t *testing.T, what string, err error, denied bool, text string) {
	t.Helper()
	if err == nil || errors.Is(err, driver.ErrDenied) != denied || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v; want denied: %v, with %q", what, err, denied, text)
	}
}

// Writes are denied, so certainly not done, as soon as all that have no answer were refused. Until then one of them may have been done.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	const subject = "$KV.b.k"
	type write struct {
		c     *fakeConn
		reply string
	}
	arrived := make(chan write, 10)
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if strings.HasPrefix(m.subject, "$KV.") {
			arrived <- write{c, m.reply}
		} else if m.reply != "" {
			c.empty(m)
		}
	})
	l := openFake(t, f, "?requestTimeout=2s")
	ctx := t.Context()
	refuse := func() { present(l).note(fmt.Errorf("nats: %s", violationOf(subject))) }
	alone := put(ctx, l, "k")
	(<-arrived).c.refuse(violationOf(subject))
	wantDenied(t, "a write", (<-alone).err, true, `publish to "$KV.b.k"`)

	one, two := put(ctx, l, "k"), put(ctx, l, "k")
	<-arrived
	<-arrived
	refuse()
	select {
	case r := <-one:
		t.Errorf("one of two was refused: %+v", r)
	case r := <-two:
		t.Errorf("one of two was refused: %+v", r)
	default:
	}
	refuse()
	wantDenied(t, "both writes", (<-one).err, true, `publish to "$KV.b.k"`)
	wantDenied(t, "both writes", (<-two).err, true, `publish to "$KV.b.k"`)

	other := put(ctx, l, "other")
	<-arrived
	one, two = put(ctx, l, "k"), put(ctx, l, "k")
	done := <-arrived
	<-arrived
	refuse()
	done.c.say(done.reply, `{"stream":"KV_b","seq":7}`)
	results := []error{(<-one).err, (<-two).err}
	if results[0] != nil {
		slices.Reverse(results)
	}
	if results[0] != nil {
		t.Errorf("one of two was answered: %v", results[0])
	}
	wantDenied(t, "the one without an answer", results[1], true, `publish to "$KV.b.k"`)
	wantDenied(t, "a write of another key", (<-other).err, false, "no answer")

	given, cancel := context.WithCancel(ctx)
	forsaken := put(given, l, "k")
	<-arrived
	cancel()
	if err := (<-forsaken).err; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	late := put(ctx, l, "k")
	<-arrived
	refuse() // that of the write before?
	wantDenied(t, "a write after one without an answer", (<-late).err, false, "this write was refused, or another one")
	wantDenied(t, "a request that reads", func() error {
		f.set(func(c *fakeConn, m fakeMessage) { c.refuse(violationOf(m.subject)) })
		_, err := l.store.Get(ctx, "k")
		return err
	}(), true, "STREAM.")
}

// Without the right to get answers, a request that was sent may have been done. The next ones are denied, until the right is back.
func TestLostInbox(t *testing.T) {
	t.Parallel()
	arrived, allowed := make(chan *fakeConn, 1), false
	var mu sync.Mutex
	f := startFake(t, greeting, nil)
	f.set(func(c *fakeConn, m fakeMessage) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.HasPrefix(m.subject, "SUB ") && c.number > 1 && !allowed:
			c.refuse(fmt.Sprintf("Permissions Violation for Subscription to %q", strings.TrimPrefix(m.subject, "SUB ")))
		case strings.HasPrefix(m.subject, "$KV."):
			arrived <- c
		case m.reply != "":
			c.empty(m)
		}
	})
	l := openFake(t, f, "")
	done := put(t.Context(), l, "k")
	c := <-arrived
	c.refuse(fmt.Sprintf("Permissions Violation for Subscription to %q", present(l).answers()))
	wantDenied(t, "a write that was sent", (<-done).err, false, "ended before the answer came")
	_, err := l.store.Get(t.Context(), "k")
	wantDenied(t, "a request after it", err, true, `subscribe to "_INBOX.>"`)
	mu.Lock()
	allowed = true
	mu.Unlock()
	await(t, func() error { _, err := l.store.Get(t.Context(), "k"); return err })
}

func await(t *testing.T, call func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := call()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A watch whose subject is refused ends, and nothing else does.
func TestRefusedWatch(t *testing.T) {
	t.Parallel()
	arrived := make(chan *fakeConn, 1)
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		subject, is := strings.CutPrefix(m.subject, "SUB ")
		switch {
		case is && !strings.HasSuffix(subject, ".*"):
			c.refuse(fmt.Sprintf("Permissions Violation for Subscription to %q", subject))
		case strings.HasPrefix(m.subject, "$KV."):
			arrived <- c
		case m.reply != "":
			c.empty(m)
		}
	})
	l := openFake(t, f, "")
	done := put(t.Context(), l, "k")
	c := <-arrived
	wantDenied(t, "the watch", l.store.watch(t.Context(), "k", func(cas.Value) {}), true, `subscribe to "_INBOX.>"`)
	for _, subject := range f.subjects() {
		if subject == "$KV.b.k" {
			c.say(answerTo(present(l), "$KV.b.k"), `{"stream":"KV_b","seq":7}`)
		}
	}
	if r := <-done; r.err != nil || r.w.Version != "7" {
		t.Errorf("a write at the same time: %+v", r)
	}
	if f.connections() != 1 {
		t.Errorf("%d connections", f.connections())
	}
}

// answerTo is where the answer to a request with a subject is expected.
func answerTo(c *conn, subject string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number, one := range c.calls {
		if one.subject == subject {
			return c.inbox + "." + fmt.Sprint(number)
		}
	}
	return ""
}

// While the library dials, no call waits for it, and none is sent after its end.
func TestNothingWaitsForTheDialer(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, nil)
	dials, goOn := make(chan struct{}), make(chan struct{})
	l := openFake(t, f, "?requestTimeout=10s")
	f.mu.Lock()
	f.greets = func(number int) {
		if number == 2 {
			close(dials)
			<-goOn
		}
	}
	f.mu.Unlock()
	closeConn(present(l))
	<-dials
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := l.store.Put(ctx, "late", nil, "")
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	close(goOn)
	await(t, func() error { _, err := l.store.Get(t.Context(), "k"); return err })
	if slices.Contains(f.subjects(), "$KV.b.late") || f.connections() != 2 {
		t.Errorf("%d connections, sent %q", f.connections(), f.subjects())
	}
}

// A connection that has ended is not used, also before its owner has noticed. A call waits for the next one, within its time limit.
func TestUse(t *testing.T) {
	l := &link{ctx: t.Context(), settings: settings{timeout: 50 * time.Millisecond}, changed: make(chan struct{})}
	ended, next := &conn{ended: make(chan struct{})}, &conn{ended: make(chan struct{})}
	close(ended.ended)
	l.set(ended, nil)
	if c, err := l.use(t.Context()); c != nil || err == nil || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("%v, %v", c, err)
	}
	l.timeout = time.Minute
	var work sync.WaitGroup
	work.Go(func() { l.set(next, nil) })
	if c, err := l.use(t.Context()); c != next || err != nil {
		t.Errorf("%v, %v", c, err)
	}
	work.Wait()
	l.set(nil, driver.Denied(errors.New("refused")))
	if _, err := l.use(t.Context()); !errors.Is(err, driver.ErrDenied) {
		t.Error(err)
	}
}

// A call that waits for another one to be sent ends with its context, and is not sent.
func TestCallsThatWaitToBeSent(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, nil)
	l := openFake(t, f, "")
	present(l).sending <- struct{}{} // as while the library writes to a server that reads nothing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.store.Put(ctx, "late", nil, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-present(l).sending
	if _, err := l.store.Get(t.Context(), "k"); err != nil || slices.Contains(f.subjects(), "$KV.b.late") {
		t.Errorf("%v, sent %q", err, f.subjects())
	}
}

// A server that stops to answer while a connection is made.
func TestServerThatStopsToAnswer(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, nil)
	f.pongs = 1
	_, err := Open(t.Context(), f.url()+"?requestTimeout=100ms", onlyReads)
	wantDenied(t, "a server without a second answer", err, false, "does not answer")
}

// closeConn ends a connection, as a server does.
func closeConn(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(nil)
}

// A server that reads nothing: calls end with their contexts, and the connection is left.
func TestServerThatReadsNothing(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if strings.HasPrefix(m.subject, "$KV.") && c.number == 1 {
			<-block
		} else if m.reply != "" {
			c.empty(m)
		}
	})
	defer close(block)
	l := openFake(t, f, "?requestTimeout=1m") // longer than the test: no PING finds it
	c := present(l)
	data := make([]byte, 1<<20)
	var work sync.WaitGroup
	for range 32 { // more than the system keeps
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := l.store.Put(ctx, "k", data, "")
			if took := time.Since(began); err == nil || took > writeLimit+5*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
	work.Wait()
	<-c.ended
	await(t, func() error { _, err := l.store.Get(t.Context(), "k"); return err })
}

// An error of the server that the library does not know ends its connection for good. Another one is made.
func TestUnknownError(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if strings.HasPrefix(m.subject, "$KV.") && c.number == 1 {
			c.refuse("Something New")
		} else if m.reply != "" {
			c.empty(m)
		}
	})
	l := openFake(t, f, "")
	_, err := l.store.Put(t.Context(), "k", []byte("x"), "")
	wantDenied(t, "a write that was sent", err, false, "ended before the answer came")
	if w, err := l.store.Put(t.Context(), "k", []byte("x"), ""); err != nil || w.Version != "7" {
		t.Errorf("on the next connection: %+v, %v", w, err)
	}
}

// Writes that nobody waits for do not gather without end.
func TestForsakenWrites(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if m.reply != "" && !strings.HasPrefix(m.subject, "$KV.") {
			c.empty(m)
		}
	})
	l := openFake(t, f, "?requestTimeout=1m") // longer than the test: no PING ends it
	c := present(l)
	for end := time.Now().Add(time.Minute); !c.over(); { // those that are not sent in time do not count
		if time.Now().After(end) {
			t.Fatal("the connection goes on")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		var work sync.WaitGroup
		for range maxForsaken / 2 {
			work.Go(func() { _, _ = l.store.Put(ctx, "k", nil, "") })
		}
		work.Wait()
		cancel()
	}
	await(t, func() error { _, err := l.store.Get(t.Context(), "k"); return err })
}

// The program's own dialer and callbacks: Close ends although the program wants no callbacks after it, and calls none of them.
func TestOptionsOfTheProgram(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, nil)
	o := natsgo.GetDefaultOptions()
	called := func(*natsgo.Conn) { t.Error("a callback of the program was called") }
	d := &countingDialer{}
	o.Url, o.CustomDialer = "nats://"+f.addr, d
	o.NoCallbacksAfterClientClose, o.ClosedCB, o.ConnectedCB, o.ReconnectedCB = true, called, called, called
	c, err := newSettings("b", []Option{onlyReads})
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- l.Close(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("Close hangs")
	}
	if d.dialed != 1 {
		t.Errorf("the program's dialer was called %d times", d.dialed)
	}
}

// A dialer or a callback of the program that hangs holds up neither Open, beyond its context, nor Close.
func TestHangingProgram(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	defer close(hung)
	soon := func(what string, call func() error) error { return locktest.Within(t, 20*time.Second, what, call) }
	for what, c := range map[string]struct {
		greeting string
		hang     func(o *natsgo.Options, wait func())
	}{
		"a dialer": {greeting, func(o *natsgo.Options, wait func()) {
			o.CustomDialer = dialerFunc(func(network, address string) (net.Conn, error) {
				wait()
				return net.DialTimeout(network, address, time.Minute)
			})
		}},
		"a signature": {strings.Replace(greeting, "{", `{"nonce":"n","auth_required":true,`, 1), func(o *natsgo.Options, wait func()) {
			o.Nkey, o.SignatureCB = "key", func([]byte) ([]byte, error) { wait(); return []byte("signed"), nil }
		}},
	} {
		f := startFake(t, c.greeting, nil)
		openUntil := func(ctx context.Context, hangs int64, limits ...Option) (l *Locker, reached chan struct{}, err error) {
			o, calls := natsgo.GetDefaultOptions(), atomic.Int64{}
			reached = make(chan struct{})
			o.Url = "nats://" + f.addr
			c.hang(&o, func() {
				if n := calls.Add(1); n == hangs {
					close(reached)
					<-hung
				}
			})
			s, err := newSettings("b", append(limits, onlyReads))
			if err == nil && hangs == 1 {
				limited, cancel := context.WithCancel(ctx)
				defer cancel()
				go func() { <-reached; cancel() }()
				ctx = limited
			}
			if err == nil {
				l, err = open(ctx, o, s)
			}
			return l, reached, err
		}
		err := soon("Open with "+what, func() error { _, _, err := openUntil(t.Context(), 1); return err })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Open with %s: %v", what, err)
		}
		l, reached, err := openUntil(t.Context(), 2)
		if err != nil {
			t.Fatal(what, err)
		}
		closeConn(present(l))
		<-reached // while it connects again
		if err := soon("Close with "+what, func() error { return l.Close(context.WithoutCancel(t.Context())) }); err != nil {
			t.Errorf("Close with %s: %v", what, err)
		}
		if l, reached, err = openUntil(t.Context(), 2, WithRequestTimeout(time.Second)); err != nil {
			t.Fatal(what, err)
		}
		ended := present(l)
		closeConn(ended)
		<-reached
		again := func() error { // the attempt has a limit, and the next one is not in its way
			for {
				if c, _, _ := l.store.link.present(); c != nil && c != ended {
					return nil
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		_ = soon("another attempt after "+what, again)
		if err := soon("Close", func() error { return l.Close(context.WithoutCancel(t.Context())) }); err != nil {
			t.Error(what, err)
		}
	}
}

// Attempts that hang in a program's own callback do not pile up.
func TestAbandonedAttempts(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	defer close(hung)
	f := startFake(t, greeting, nil)
	o, attempts, dials := natsgo.GetDefaultOptions(), make(chan struct{}, 1), atomic.Int64{}
	o.Url = "nats://" + f.addr
	o.CustomDialer = dialerFunc(func(string, string) (net.Conn, error) {
		dials.Add(1)
		<-hung
		return nil, errors.New("hung")
	})
	for range 2 {
		if _, err := dial(t.Context(), o, time.Second, attempts); !errors.Is(err, errAbandoned) {
			t.Error(err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d attempts hang", n)
	}
}

// Servers end a connection when its login expires. That is no refusal: the next connection has a credential that was renewed.
func TestExpiredLogin(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		if m.subject == "expire" {
			c.write("-ERR 'User Authentication Expired'\r\n")
			_ = c.Close()
		}
	})
	o, dials := natsgo.GetDefaultOptions(), atomic.Int64{}
	o.Url = "nats://" + f.addr
	o.CustomDialer = dialerFunc(func(network, address string) (net.Conn, error) {
		if dials.Add(1) > 1 {
			time.Sleep(300 * time.Millisecond) // in which there is no connection
		}
		return net.DialTimeout(network, address, time.Minute)
	})
	s, err := newSettings("b", []Option{onlyReads})
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), o, s)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	first := present(l)
	if err := first.nc.Publish("expire", nil); err != nil {
		t.Fatal(err)
	}
	for c := first; c == first; {
		if c, err = l.store.link.use(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An attempt that ends after its context, as those of package net do, is waited for.
func TestAttemptIsWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	o, ended := natsgo.GetDefaultOptions(), false
	o.CustomDialer = dialerFunc(func(string, string) (net.Conn, error) {
		cancel()
		time.Sleep(20 * time.Millisecond) // longer than it takes to notice the end of ctx
		ended = true
		return nil, errors.New("no connection")
	})
	if _, err := connectWithin(ctx, o, make(chan struct{}, 1)); err == nil || !ended {
		t.Errorf("the attempt goes on: %v", err)
	}
}

type dialerFunc func(network, address string) (net.Conn, error)

func (f dialerFunc) Dial(network, address string) (net.Conn, error) { return f(network, address) }

type countingDialer struct{ dialed int }

func (d *countingDialer) Dial(network, address string) (net.Conn, error) {
	d.dialed++
	return net.DialTimeout(network, address, time.Minute)
}

func (*countingDialer) SkipTLSHandshake() bool { return true }

// A dialer passes on what the program's own one says of TLS.
func TestSkipTLSHandshake(t *testing.T) {
	if !(&dialer{given: &countingDialer{}}).SkipTLSHandshake() || (&dialer{}).SkipTLSHandshake() {
		t.Error("not that of the program's dialer")
	}
}
