package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// fakeSentinel answers with what masterFacts returns or an error, or never if that is empty.
func fakeSentinel(t *testing.T, answer string) (addr string) {
	t.Helper()
	return fakeServer(t, func(_ string, words []string) string {
		switch {
		case words[0] != "sentinel":
			return "-ERR unknown command\r\n"
		case words[1] == "get-master-addr-by-name" && strings.HasPrefix(answer, "*"):
			parts := strings.Split(answer, "\r\n")
			return "*2\r\n" + strings.Join([]string{parts[7], parts[8], parts[11], parts[12]}, "\r\n") + "\r\n"
		}
		return answer
	})
}

// masterFacts is the answer of a Sentinel.
func masterFacts(addr string, epoch, replicas int) string {
	host, port, _ := strings.Cut(addr, ":")
	var b strings.Builder
	words := []string{"name", "main", "ip", host, "port", port, "config-epoch", fmt.Sprint(epoch), "num-slaves", fmt.Sprint(replicas)}
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b.String()
}

// Of several Sentinels the one with the newest configuration names the primary: one that was cut off names a former one. It also says how
// many replicas there are. One that hangs delays nobody for long.
func TestNewestSentinelNamesThePrimary(t *testing.T) {
	t.Parallel()
	const timeout = 20 * time.Second
	old, now, hangs := fakeSentinel(t, masterFacts("old:1", 5, 7)), fakeSentinel(t, masterFacts("new:1", 6, 2)), fakeSentinel(t, "")
	denied := fakeSentinel(t, "-NOAUTH Authentication required.\r\n")
	failsOver := fakeServer(t, func(_ string, words []string) string { // its facts are still those of the former primary
		switch strings.Join(words, " ") {
		case "sentinel master main":
			return masterFacts("old:1", 6, 2)
		case "sentinel get-master-addr-by-name main":
			return "*2\r\n$3\r\nnew\r\n$1\r\n1\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	for name, test := range map[string]struct {
		addrs []string
		want  string
	}{
		"one":                  {[]string{old}, "old:1 7"},
		"newer last":           {[]string{old, now}, "new:1 2"},
		"newer first":          {[]string{now, old}, "new:1 2"},
		"one hangs":            {[]string{hangs, now, old}, "new:1 2"},
		"one is of others":     {[]string{denied, now}, "new:1 2"},
		"amid a fail-over":     {[]string{failsOver}, "new:1 2"},
		"one knows no primary": {[]string{fakeSentinel(t, "-ERR No such master with that name\r\n"), now}, "new:1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			saw := -1
			s := newSentinels(target{sentinels: test.addrs, master: "main"}, timeout)
			s.saw = func(n int) { saw = n }
			began := time.Now()
			addr, err := s.learn(t.Context())
			if got := fmt.Sprint(addr, " ", saw); got != test.want || err != nil || time.Since(began) > timeout/2 {
				t.Errorf("%s, %v, after %v, want %s", got, err, time.Since(began), test.want)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// When the Sentinel with the newest configuration does not answer, another that was cut off names a former primary. It is believed only
// when nobody has named the newer one for long.
func TestNewestConfigurationIsRemembered(t *testing.T) {
	t.Parallel()
	old, now := fakeSentinel(t, masterFacts("old:1", 5, 0)), fakeSentinel(t, masterFacts("new:1", 6, 0))
	s := newSentinels(target{sentinels: []string{old, now}, master: "main"}, 20*time.Second)
	defer func() { _ = s.close() }()
	moves := 0
	s.moved = func() { moves++ }
	want := func(what, addr string, moved int) {
		t.Helper()
		if got, err := s.learn(t.Context()); got != addr || moves != moved {
			t.Errorf("%s: %q, %v, moved %d times", what, got, err, moves)
		}
	}
	want("both answer", "new:1", 0)
	newest := s.clients[1]
	defer func() { _ = newest.Close() }()
	s.clients = s.clients[:1]
	want("the former one is named alone", "new:1", 0)
	s.named = time.Now().Add(-remembered)
	want("the former one is named alone, for long", "", 1)
	want("and again", "old:1", 1)
}

// An unknown name and a wrong password stay until a person changes something. A Sentinel that is away may come back.
func TestNoSentinelNamesThePrimary(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		text   string
		denied bool
	}{
		"-ERR No such master with that name\r\n": {`no primary of the name "main"`, true},
		"-NOAUTH Authentication required.\r\n":   {"NOAUTH", true},
		"-LOADING still\r\n":                     {"LOADING", false},
		"":                                       {"no Sentinel names", false},
	} {
		timeout := 20 * time.Second
		if answer == "" {
			timeout = 200 * time.Millisecond
		}
		_, err := Open(t.Context(), "redis://"+fakeSentinel(t, answer)+"/0?master=main", WithCommandTimeout(timeout))
		if err == nil || errors.Is(err, driver.ErrDenied) != want.denied || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%q: %v, want %q", answer, err, want.text)
		}
	}
}

// As long as one Sentinel may come back and name the primary, the failure passes; its text names what another one refuses.
func TestSomeSentinelsRefuse(t *testing.T) {
	t.Parallel()
	const refusal = "NOAUTH Authentication required."
	refuses, loads, hangs := fakeSentinel(t, "-"+refusal+"\r\n"), fakeSentinel(t, "-LOADING still\r\n"), fakeSentinel(t, "")
	for name, test := range map[string]struct {
		addrs  []string
		denied bool
	}{
		"all refuse":           {[]string{refuses, refuses}, true},
		"one loads":            {[]string{refuses, loads}, false},
		"one loads, and first": {[]string{loads, refuses}, false},
		"one hangs":            {[]string{refuses, hangs}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSentinels(target{sentinels: test.addrs, master: "main"}, 5*time.Second)
			_, err := s.learn(t.Context())
			if err == nil || errors.Is(err, driver.ErrDenied) != test.denied || strings.Count(err.Error(), refusal) != 1 {
				t.Error(err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A write that has no answer may be done still, whatever Sentinel refuses meanwhile. After a lasting error nobody would clean up.
func TestWriteWithoutAnswerWhileSentinelRefuses(t *testing.T) {
	t.Parallel()
	proxy := castest.NewProxy(t, redistest.Start(t).Addr())
	var refuses atomic.Bool
	facts := masterFacts(proxy.Addr(), 1, 0)
	sentinel := fakeServer(t, func(_ string, words []string) string {
		switch {
		case refuses.Load():
			return "-NOAUTH Authentication required.\r\n"
		case words[0] != "sentinel":
			return "-ERR unknown command\r\n"
		case words[1] == "master":
			return facts
		}
		host, port, _ := net.SplitHostPort(proxy.Addr())
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	})
	l := openAt(t, redistest.At(sentinel)+"/0?master=main", unprobed)
	if _, err := l.store.Put(t.Context(), "first", []byte("x"), ""); err != nil { // a connection is open, and the script is known
		t.Fatal(err)
	}
	refuses.Store(true)
	proxy.Set(castest.Stall)
	all := l.store.servers.(*primary).sentinels
	all.mu.Lock()
	all.asked = time.Time{} // Sentinel is asked again
	all.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, failed := time.Now(), make(chan error, 1)
	go func() {
		_, err := l.store.Put(ctx, "n", []byte("x"), "")
		failed <- err
	}()
	locktest.Eventually(t, "Sentinel refuses", func() bool { return all.why(began) != nil })
	cancel()
	err := <-failed
	if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("%v, want that the outcome is unknown, and why", err)
	}
	refuses.Store(false)
	proxy.Set(castest.Pass)
	locktest.Eventually(t, "the write is done", func() bool {
		v, err := l.store.Get(t.Context(), "n")
		return err == nil && string(v.Data) == "x"
	})
}

// The dialer of the connection for notifications may be the first to learn that Sentinel names another primary. It does not wait for the
// end of that very connection.
func TestNotificationsLearnOfAnotherPrimary(t *testing.T) {
	old, now := fakeSentinel(t, masterFacts("127.0.0.1:1", 5, 0)), fakeSentinel(t, masterFacts("127.0.0.1:2", 6, 0))
	const timeout = time.Second
	s := newSentinels(target{sentinels: []string{old}, master: "main"}, timeout)
	if _, err := s.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.clients = append(s.clients, goredis.NewSentinelClient(&goredis.Options{Addr: now, MaxRetries: -1}))
	st := &store{config: config{prefix: "x:", timeout: timeout}}
	st.hub = newHub(st)
	st.servers = newPrimary(goredis.Options{MaxRetries: -1, DialTimeout: timeout}, s, st.hub.leave)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := st.hub.watch(ctx, "k", func(cas.Value) {}); err == nil || ctx.Err() != nil {
		t.Errorf("the watch ended with %v", err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		st.hub.close()
		_ = st.servers.close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("the hub does not end")
	}
}

// dialsInVain are the options of a client whose dials last until their context ends.
func dialsInVain(t *testing.T) (o goredis.Options, dials chan struct{}) {
	t.Helper()
	dials = make(chan struct{}, 10)
	return goredis.Options{MaxRetries: -1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials <- struct{}{}
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return nil, errors.New("no connection")
	}}, dials
}

// Close waits for no dial that is made in the background, of Sentinel or for the layout of a cluster.
func TestCloseEndsDialsInTheBackground(t *testing.T) {
	t.Parallel()
	o, dials := dialsInVain(t)
	s := newSentinels(target{master: "main"}, time.Minute)
	s.clients, s.addr = append(s.clients, goredis.NewSentinelClient(&o)), "127.0.0.1:1"
	s.askAgain()
	<-dials
	_ = locktest.Within(t, 10*time.Second, "closing Sentinel's clients", s.close)
	o, dials = dialsInVain(t)
	c := newCluster(o, []string{"127.0.0.1:1"}, time.Minute)
	ended := make(chan error, 1)
	go func() {
		_, err := c.current(context.WithoutCancel(t.Context()), true)
		ended <- err
	}()
	<-dials
	_ = locktest.Within(t, 10*time.Second, "closing the cluster", c.close)
	if err := <-ended; err == nil {
		t.Error("the layout was loaded")
	}
}

// Close waits for no dial of a connection for notifications.
func TestCloseEndsTheDialForNotifications(t *testing.T) {
	t.Parallel()
	o, dials := dialsInVain(t)
	st := &store{config: config{prefix: "x:", timeout: time.Minute}}
	st.hub = newHub(st)
	st.servers = newPrimary(o, nil, st.hub.leave)
	ended := make(chan error, 1)
	go func() { ended <- st.hub.watch(context.WithoutCancel(t.Context()), "k", func(cas.Value) {}) }()
	<-dials
	_ = locktest.Within(t, 10*time.Second, "Close", func() error { return st.close(t.Context()) })
	if err := <-ended; err == nil {
		t.Error("the watch has no error")
	}
}
