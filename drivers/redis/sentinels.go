package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// askAgainEvery is how often Sentinel is asked again for the primary, while there are requests.
	askAgainEvery = 5 * time.Second
	// patience is how long other Sentinels are waited for when one has answered.
	patience = 300 * time.Millisecond
	// remembered is for how long the newest configuration counts although no Sentinel names it or a newer one. Its number falls only when
	// Sentinel was set up anew.
	remembered = time.Minute
)

// sentinels ask all Sentinels for the primary: one that was cut off from the others names a former one.
//
// The client of go-redis asks one of them, and is notified by it alone.
type sentinels struct {
	name    string
	clients []*goredis.SentinelClient
	timeout time.Duration
	connect func(ctx context.Context, network, addr string) (net.Conn, error)
	saw     func(replicas int) // how many replicas there are, those included that are down
	moved   func()             // called when there is another primary
	ctx     context.Context    //nolint:containedctx // close ends it
	stop    context.CancelFunc

	work     sync.WaitGroup
	mu       sync.Mutex
	closed   bool
	asked    time.Time // when Sentinel was asked the last time
	addr     string    // of the primary, as the newest configuration says
	epoch    int       // of that
	named    time.Time // when a Sentinel named it last
	err      error     // why no Sentinel named it the last time, and when that was
	failedAt time.Time
}

func newSentinels(t target, timeout time.Duration) *sentinels {
	s := &sentinels{name: t.master, timeout: timeout, connect: dialer(timeout, t.options.TLSConfig), saw: func(int) {}, moved: func() {}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for _, addr := range t.sentinels {
		s.clients = append(s.clients, goredis.NewSentinelClient(&goredis.Options{
			Addr: addr, Username: t.sentinelUser, Password: t.sentinelPassword, Dialer: s.connect, MaxRetries: -1,
			ContextTimeoutEnabled: true, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		}))
	}
	return s
}

// named is what a Sentinel says.
type named struct {
	addr     string
	epoch    int // the newest configuration has the greatest
	replicas int
}

// ask asks all Sentinels at the same time. The newest configuration counts.
func (s *sentinels) ask(ctx context.Context) (newest named, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	type answer struct {
		named
		err error
	}
	answers := make(chan answer, len(s.clients))
	for _, client := range s.clients {
		started := s.start(func() {
			n, err := s.askOne(ctx, client)
			answers <- answer{n, s.failed(err)}
		})
		if !started {
			return newest, goredis.ErrClosed
		}
	}
	var enough <-chan time.Time
	var passing, lasting error
	for range s.clients {
		select {
		case a := <-answers:
			switch {
			case errors.Is(a.err, driver.ErrDenied):
				lasting = cmp.Or(lasting, a.err)
			case a.err != nil:
				passing = cmp.Or(passing, a.err)
			case newest.addr == "" || a.epoch > newest.epoch:
				newest = a.named
			}
			if a.err == nil && enough == nil {
				enough = time.After(patience)
			}
			continue
		case <-enough:
		case <-ctx.Done():
			passing = cmp.Or(passing, s.failed(ctx.Err()))
		}
		break
	}
	switch {
	case newest.addr != "":
		return newest, nil
	case passing != nil && lasting != nil: // the others may come back, and name it
		passing = fmt.Errorf("%w; another answers: %v", passing, lasting) //nolint:errorlint // %w would make it lasting
	}
	return newest, cmp.Or(passing, lasting)
}

// askOne asks a Sentinel. While it makes a fail-over, its facts about the primary are still those of the former one.
func (s *sentinels) askOne(ctx context.Context, client *goredis.SentinelClient) (n named, err error) {
	facts, err := client.Master(ctx, s.name).Result()
	if err != nil {
		return n, err
	}
	addr, err := client.GetMasterAddrByName(ctx, s.name).Result()
	if err != nil || len(addr) != 2 {
		return n, cmp.Or(err, errAnswer)
	}
	n.addr = net.JoinHostPort(addr[0], addr[1])
	n.epoch, _ = strconv.Atoi(facts["config-epoch"])
	n.replicas, _ = strconv.Atoi(facts["num-slaves"])
	return n, nil
}

// failed is the error when a Sentinel does not name the primary.
func (s *sentinels) failed(err error) error {
	if err == nil {
		return nil
	}
	if goredis.HasErrorPrefix(err, "No such master") {
		return driver.Denied(fmt.Errorf("no primary of the name %s is known to Sentinel", driver.Quote(s.name)))
	}
	err = fmt.Errorf("no Sentinel names the primary %s: %w", driver.Quote(s.name), err)
	return classify(err)
}

// start runs work, for which close waits.
func (s *sentinels) start(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Go(work)
	}
	return !s.closed
}

// learn asks for the primary, and notes it. If it is another one than before, it fails: the client has been replaced.
//
// If the only Sentinel that answers is cut off from the others, it names a former primary, as an answer does that comes late.
func (s *sentinels) learn(ctx context.Context) (addr string, err error) {
	now, err := s.ask(ctx)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err, s.failedAt = err, time.Now()
		return "", err
	}
	s.saw(now.replicas)
	s.mu.Lock()
	s.asked, s.err = time.Now(), nil
	if now.epoch < s.epoch && time.Since(s.named) < remembered {
		defer s.mu.Unlock()
		return s.addr, nil
	}
	is := s.addr == "" || s.addr == now.addr
	s.addr, s.epoch, s.named = now.addr, now.epoch, time.Now()
	s.mu.Unlock()
	if !is {
		s.moved()
		return "", goredis.ErrClosed
	}
	return now.addr, nil
}

// why returns why no Sentinel named the primary, if that was after a time, and none has since.
func (s *sentinels) why(since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failedAt.Before(since) {
		return nil
	}
	return s.err
}

// askAgain asks in the background whether the primary is still the same, if the last time is long ago.
func (s *sentinels) askAgain() {
	s.mu.Lock()
	due := s.addr != "" && time.Since(s.asked) >= askAgainEvery
	if due {
		s.asked = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.start(func() { _, _ = s.learn(s.ctx) })
	}
}

// dial connects to the primary.
func (s *sentinels) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := s.learn(ctx)
	if err != nil {
		return nil, err
	}
	return s.connect(ctx, network, addr)
}

func (s *sentinels) close() (err error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	for _, client := range s.clients {
		err = errors.Join(err, client.Close())
	}
	s.work.Wait()
	return err
}
