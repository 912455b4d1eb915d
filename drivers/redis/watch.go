package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// A hub has one connection for all keys that are watched. When nobody has watched for idleTime, it closes the connection.
type hub struct {
	store *store
	work  sync.WaitGroup
	ctx   context.Context //nolint:containedctx // close ends it
	stop  context.CancelFunc

	mu       sync.Mutex
	closed   bool
	listener *listener
}

func newHub(s *store) *hub {
	h := &hub{store: s}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// listener is a connection, with a goroutine that sends and one that receives.
type listener struct {
	pubsub *goredis.PubSub
	due    chan struct{} // there are names
	ended  chan struct{}
	once   sync.Once

	// The hub's mu guards the rest.
	channels map[string]*channel
	names    []string // of channels whose subscription may have to change
	done     bool     // no watch may join
}

// channel is one that somebody watches, or has watched.
type channel struct {
	key        string
	watches    map[*watch]struct{}
	asked, got int // how many subscriptions were requested, and confirmed
}

// watch is one call of Watch.
type watch struct {
	changed func(cas.Value)
	need    int // it is in effect when its channel has got so many confirmations; 0 if its subscription was not requested so far
	began   bool
	failed  chan error
}

const (
	// silence is after how long without a message the connection is tried, and after how long more it counts as dead.
	silence  = 5 * time.Second
	idleTime = 10 * time.Second
	// lookEvery is how often the watched keys are looked for.
	lookEvery = 5 * time.Second
)

var errConnectionEnded = errors.New("the connection for notifications has ended")

// watch implements Watch of [cas.Config].
func (h *hub) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	name := h.store.channel(key)
	w := &watch{changed: changed, failed: make(chan error, 1)}
	l, err := h.join(key, name, w)
	if err != nil {
		return err
	}
	defer h.end(l, name, w)
	select {
	case err := <-w.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join registers a watch.
func (h *hub) join(key, name string, w *watch) (*listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errConnectionEnded
	}
	l := h.listener
	if l == nil || l.done {
		l = &listener{pubsub: h.store.servers.some().Subscribe(h.ctx), due: make(chan struct{}, 1), ended: make(chan struct{}),
			channels: map[string]*channel{}}
		h.listener = l
		h.work.Go(func() { h.sendAll(l) })
		h.work.Go(func() { h.receiveAll(l) })
	}
	c := l.channels[name]
	if c == nil {
		c = &channel{key: key, watches: map[*watch]struct{}{}}
		l.channels[name] = c
	}
	c.watches[w] = struct{}{}
	l.change(name)
	return l, nil
}

// end ends a watch.
func (h *hub) end(l *listener, name string, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := l.channels[name]; c != nil {
		delete(c.watches, w)
		l.change(name)
	}
}

// change has the goroutine that sends look at a channel. The hub's mu is held.
func (l *listener) change(name string) {
	l.names = append(l.names, name)
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// end closes the connection.
func (l *listener) end() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.pubsub.Close()
	})
}

// sendAll subscribes to channels, and ends subscriptions, until the connection ends.
func (h *hub) sendAll(l *listener) {
	defer l.end()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-l.due:
		case <-look.C:
			h.lookForRemovals(l)
			continue
		case <-l.ended:
			return
		}
		subscribe, unsubscribe := h.changes(l)
		for _, c := range []struct {
			send  func(context.Context, ...string) error
			names []string
		}{{l.pubsub.Subscribe, subscribe}, {l.pubsub.Unsubscribe, unsubscribe}} {
			if len(c.names) == 0 {
				continue
			}
			ctx, cancel := context.WithTimeout(h.ctx, h.store.config.timeout)
			err := c.send(ctx, c.names...)
			cancel()
			if err != nil {
				return
			}
		}
	}
}

// changes returns the channels to subscribe to, and those whose subscription ends. A channel is forgotten only when all subscriptions
// to it are confirmed: a later one would take the confirmation of an earlier one for its own.
func (h *hub) changes(l *listener) (subscribe, unsubscribe []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range l.names {
		c := l.channels[name]
		if c == nil {
			continue
		}
		if len(c.watches) == 0 && c.got == c.asked {
			delete(l.channels, name)
			unsubscribe = append(unsubscribe, name)
			continue
		}
		asks := false
		for w := range c.watches {
			if w.need == 0 {
				w.need, asks = c.asked+1, true
			}
		}
		if asks {
			c.asked++
			subscribe = append(subscribe, name)
		}
	}
	l.names = nil
	return subscribe, unsubscribe
}

// lookForRemovals reports the keys that are not there: nobody publishes that a person has removed one. It is one request to each server.
func (h *hub) lookForRemovals(l *listener) {
	names, keys := h.watchedKeys(l)
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.store.config.timeout)
	defer cancel()
	removed, err := do(ctx, h.store, true, func(ctx context.Context) (removed []string, err error) {
		found := make([]*goredis.IntCmd, len(keys))
		errs := h.store.sendAll(ctx, keys, func(pipe goredis.Pipeliner, group []int) {
			for _, i := range group {
				found[i] = pipe.Exists(ctx, h.store.key(keys[i]))
			}
		})
		for i, name := range names {
			if errs[i] == nil && found[i].Err() == nil && found[i].Val() == 0 {
				removed = append(removed, name)
			}
		}
		return removed, nil
	})
	if err != nil {
		return
	}
	for _, name := range removed {
		for _, w := range h.inEffect(l, name) {
			w.changed(cas.Value{})
		}
	}
}

// watchedKeys returns what somebody watches.
func (h *hub) watchedKeys(l *listener) (names, keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, c := range l.channels {
		if len(c.watches) > 0 {
			names, keys = append(names, name), append(keys, c.key)
		}
	}
	return names, keys
}

// receiveAll reports what comes until the connection ends. Then all watches end.
func (h *hub) receiveAll(l *listener) {
	err := h.receive(l)
	l.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	l.done = true
	for _, c := range l.channels {
		for w := range c.watches {
			w.failed <- err
		}
	}
	clear(l.channels)
}

func (h *hub) receive(l *listener) error {
	idle, tried := time.Now(), false
	for {
		// A read ends by its own time limit or with the connection, and by no context; a dial ends with the context.
		message, err := l.pubsub.ReceiveTimeout(h.ctx, silence)
		var timeout net.Error
		switch {
		case err == nil:
			tried = false
			h.take(l, message)
		case errors.As(err, &timeout) && timeout.Timeout() && !tried:
			if tried = true; !h.try(l) {
				return errConnectionEnded
			}
		default:
			return classify(err)
		}
		if h.watched(l) {
			idle = time.Now()
		} else if time.Since(idle) > idleTime && h.retire(l) {
			return errConnectionEnded
		}
	}
}

// try sends a request that the server answers.
func (h *hub) try(l *listener) bool {
	ctx, cancel := context.WithTimeout(h.ctx, h.store.config.timeout)
	defer cancel()
	return l.pubsub.Ping(ctx) == nil
}

func (h *hub) watched(l *listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.watched()
}

// watched reports whether there is a watch. The hub's mu is held.
func (l *listener) watched() bool {
	for _, c := range l.channels {
		if len(c.watches) > 0 {
			return true
		}
	}
	return false
}

// retire takes the connection out of use, unless somebody watches.
func (h *hub) retire(l *listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.done = !l.watched()
	return l.done
}

// take reports a message.
func (h *hub) take(l *listener, message any) {
	switch m := message.(type) {
	case *goredis.Subscription:
		if m.Kind == "subscribe" {
			for _, w := range h.confirm(l, m.Channel) {
				w.changed(cas.Value{})
			}
		}
	case *goredis.Message:
		v := cas.Value{} // it is read
		if m.Payload != "" {
			v = cas.Value{Data: []byte(m.Payload), Version: versionOf(m.Payload)}
		}
		for _, w := range h.inEffect(l, m.Channel) {
			w.changed(v)
		}
	}
}

// confirm notes that the server has confirmed a subscription, and returns the watches that are in effect from now on.
func (h *hub) confirm(l *listener, name string) (begin []*watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := l.channels[name]
	if c == nil {
		return nil
	}
	c.got++
	for w := range c.watches {
		if !w.began && w.need > 0 && c.got >= w.need {
			w.began = true
			begin = append(begin, w)
		}
	}
	if len(c.watches) == 0 {
		l.change(name)
	}
	return begin
}

// inEffect returns the watches of a channel that have begun.
func (h *hub) inEffect(l *listener, name string) (all []*watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := l.channels[name]; c != nil {
		for w := range c.watches {
			if w.began {
				all = append(all, w)
			}
		}
	}
	return all
}

// leave has the connection ended: it leads to a server that may be no primary any more. It does not wait: the caller may be the dialer of
// that very connection, which is locked meanwhile.
func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.listener; l != nil && !h.closed {
		h.work.Go(l.end)
	}
}

// close ends the connection, and waits for its goroutines.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	l := h.listener // an earlier one is ending
	h.mu.Unlock()
	h.stop() // first: while a connection is dialed, it cannot be closed
	if l != nil {
		l.end()
	}
	h.work.Wait()
}
