package cas_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type putFunc = func(ctx context.Context, key string, data []byte, version string) (cas.Written, error)

// memStore is a Store in memory. Its fields are set before it is used, and its hooks change what it does.
type memStore struct {
	now   func() time.Time // nil: it has no clock
	delay func() time.Duration
	mute  bool // writes do not return the time

	// hooks of hostile stores; put may call the store's own apply, any number of times, and get its read.
	put  putFunc
	get  func(ctx context.Context, key string) (cas.Value, error)
	list func(page string) ([]cas.Item, string, error)

	mu      sync.Mutex
	values  map[string]cas.Value
	last    int
	stalled map[string]chan struct{} // by a part of the key
	denied  string                   // a key whose requests are refused
	watches map[chan cas.Value]string
	gets    int
	puts    int
}

func newStore() *memStore {
	return &memStore{now: time.Now, values: map[string]cas.Value{}, stalled: map[string]chan struct{}{}, watches: map[chan cas.Value]string{}}
}

// wait lets the time of a call pass, and hangs while the key is stalled. It fails while the key is denied.
func (s *memStore) wait(ctx context.Context, key string) error {
	if s.delay != nil {
		if err := sleep(ctx, s.delay()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	denied := s.denied != "" && s.denied == key
	var until chan struct{}
	for part, resumed := range s.stalled {
		if strings.HasPrefix(key, part) || strings.HasPrefix(part, key) {
			until = resumed
		}
	}
	s.mu.Unlock()
	if until != nil {
		select {
		case <-until:
		case <-ctx.Done():
		}
	}
	if denied && ctx.Err() == nil {
		return driver.Denied(errors.New("no right to the key"))
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *memStore) Get(ctx context.Context, key string) (cas.Value, error) {
	if s.get != nil {
		return s.get(ctx, key)
	}
	if err := s.wait(ctx, key); err != nil {
		return cas.Value{}, err
	}
	v := s.read(key)
	if s.delay != nil {
		if err := sleep(ctx, s.delay()); err != nil {
			return cas.Value{}, err
		}
	}
	return v, nil
}

func (s *memStore) read(key string) cas.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	v := s.values[key]
	v.Data = slices.Clone(v.Data)
	if s.now != nil {
		v.Now = s.now()
	}
	return v
}

func (s *memStore) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	if s.put != nil {
		return s.put(ctx, key, data, version)
	}
	if err := s.wait(ctx, key); err != nil {
		return cas.Written{}, err
	}
	next, err := s.apply(key, data, version)
	if s.delay != nil {
		if err := sleep(ctx, s.delay()); err != nil {
			return cas.Written{}, err
		}
	}
	return next, err
}

// apply does a write, if the condition holds.
func (s *memStore) apply(key string, data []byte, version string) (cas.Written, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	if s.values[key].Version != version {
		return cas.Written{}, cas.ErrConflict
	}
	return s.written(s.set(key, data)), nil
}

// failing is a hook of writes that fail.
func failing(err error) putFunc {
	return func(context.Context, string, []byte, string) (cas.Written, error) { return cas.Written{}, err }
}

// altered is a store whose values are changed as they are read.
type altered struct {
	cas.Store
	change func(*cas.Value)
}

func (s altered) Get(ctx context.Context, key string) (cas.Value, error) {
	v, err := s.Store.Get(ctx, key)
	s.change(&v)
	return v, err
}

// written is the answer to a write.
func (s *memStore) written(version string) cas.Written {
	w := cas.Written{Version: version}
	if s.now != nil && !s.mute {
		w.Now = s.now()
	}
	return w
}

// set does a write; mu is held.
func (s *memStore) set(key string, data []byte) string {
	s.last++
	v := cas.Value{Data: slices.Clone(data), Version: "v" + strconv.Itoa(s.last)}
	if data == nil {
		delete(s.values, key)
		v = cas.Value{}
	} else {
		s.values[key] = v
	}
	for changes, watched := range s.watches {
		if watched == key {
			changes <- v
		}
	}
	return v.Version
}

// overwrite is a write of somebody else. Without data the value is deleted.
func (s *memStore) overwrite(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(key, data)
}

func (s *memStore) forget(_ context.Context, name string) error {
	s.overwrite(keyOf(name), nil)
	return nil
}

// List has pages of ten keys, the last key first. Each page begins with the last key of the one before, and there are
// empty ones.
func (s *memStore) List(ctx context.Context, prefix, page string) (items []cas.Item, next string, err error) {
	if s.list != nil {
		return s.list(page)
	}
	if err := s.wait(ctx, prefix); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, filled := strings.CutSuffix(page, "!")
	if page != "" && !filled {
		return nil, page + "!", nil
	}
	keys := slices.Sorted(maps.Keys(s.values))
	slices.Reverse(keys)
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) && (page == "" || key <= from) {
			if len(items) == 10 {
				return items, items[9].Key, nil
			}
			item := cas.Item{Key: key}
			if len(items)%2 == 0 { // half of them come with their value
				item.Value = s.values[key]
				if s.now != nil {
					item.Now = s.now()
				}
			}
			items = append(items, item)
		}
	}
	return items, "", nil
}

// watch implements Config.Watch.
func (s *memStore) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	changes := make(chan cas.Value, 10_000)
	s.mu.Lock()
	s.watches[changes] = key
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, changes)
		s.mu.Unlock()
	}()
	changed(cas.Value{})
	for n := 0; ; n++ {
		select {
		case v := <-changes:
			if n%2 == 0 {
				v = cas.Value{} // it is read then
			}
			changed(v)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *memStore) stall(_ context.Context, name string) (resume func(), err error) {
	resumed := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled[keyOf(name)] = resumed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.stalled, keyOf(name))
		close(resumed)
	}, nil
}

func (s *memStore) deny(_ context.Context, name string) (allow func(), err error) {
	set := func(key string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.denied = key
	}
	set(keyOf(name))
	return func() { set("") }, nil
}

func (s *memStore) damage(_ context.Context, name string) (mend func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := s.values[keyOf(name)].Data
	s.set(keyOf(name), whole[:len(whole)/2])
	return func() { s.overwrite(keyOf(name), whole) }, nil
}

// open makes a Locker that is closed at the end of the test.
func open(t *testing.T, store cas.Store, config cas.Config) *cas.Locker {
	t.Helper()
	l, err := cas.Open(t.Context(), store, with(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

func with(config cas.Config) cas.Config {
	config.Info.Backend = "memory with versions"
	if config.Info.Failover == 0 {
		config.Info.Failover = driver.GrantsSurvive
	}
	if config.Info.Expiry == 0 {
		config.Info.Expiry = driver.ByObservation
	}
	if config.Info.Limits.MinTTL == 0 {
		config.Info.Limits.MinTTL = time.Millisecond
	}
	if config.ProbeRounds == 0 { // a young store is raced all the time
		config.ProbeRounds = -1
	}
	return config
}

func request(name, id string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: "owner " + id, TTL: ttl}
}

// waiting is a request that waits in the queue.
func waiting(name, id string, ttl time.Duration, waiter driver.WaiterID) driver.Request {
	req := request(name, id, ttl)
	req.Waiter, req.QueueFor = waiter, time.Minute
	return req
}

// reading is a request of a reader.
func reading(name, id string, ttl time.Duration) driver.Request {
	req := request(name, id, ttl)
	req.Mode = driver.Shared
	return req
}

// mustAcquire is TryAcquire of a lock that is free.
func mustAcquire(t *testing.T, l *cas.Locker, req driver.Request) driver.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustRenew(t *testing.T, l *cas.Locker, lease driver.Lease) driver.Lease {
	t.Helper()
	renewed, err := l.Renew(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	return renewed
}

func mustRelease(t *testing.T, l *cas.Locker, lease driver.Lease) {
	t.Helper()
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

var errNoAnswer = errors.New("no answer")
