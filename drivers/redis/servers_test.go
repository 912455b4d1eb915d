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
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// noPrimary are servers of which none is known to have a key, as when no server of a cluster answers.
type noPrimary struct{ servers }

var errNoPrimary = errors.New("no primary is known")

func (noPrimary) primaryOf(context.Context, string) (*goredis.Client, error) {
	return nil, errNoPrimary
}

// Without a primary nothing is asked, and each request fails.
func TestNoPrimaryIsKnown(t *testing.T) {
	t.Parallel()
	l := openAt(t, redistest.Start(t).URL())
	l.store.servers = noPrimary{l.store.servers}
	_, got := l.store.Get(t.Context(), "k")
	_, batch := l.store.GetBatch(t.Context(), []string{"k", "m"})
	_, first := l.store.Put(t.Context(), "k", []byte("x"), "")
	_, next := l.store.Put(t.Context(), "k", []byte("x"), "version")
	_, acquired := l.TryAcquire(t.Context(), request("n", "a"))
	for what, err := range map[string]error{"get": got, "batch": batch, "put": first, "put again": next, "acquire": acquired} {
		if err == nil || !strings.Contains(err.Error(), errNoPrimary.Error()) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A primary that does not answer fails the read of its own keys, and of no others.
func TestBatchWithASilentPrimary(t *testing.T) {
	t.Parallel()
	gone := silent(t)
	alive := fakeNode(t, func(own string) string {
		return "*2\r\n" + strings.TrimPrefix(ownedBy(gone, slots), "*1\r\n") + strings.TrimPrefix(ownedBy(own, slots/2), "*1\r\n")
	})
	l := openAt(t, "redis://"+alive+"/?cluster=true&commandTimeout=1s", unprobed)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("n", i))
	}
	records, errs := l.InspectBatch(t.Context(), "", names)
	for i, name := range names {
		is := slotOf(l.store.key(lockrecord.Key(name))) < slots/2
		if is != (errs[i] == nil) || is && records[i].State != driver.StateFree {
			t.Errorf("%s, of the one that answers: %v: %v, %v", name, is, records[i].State, errs[i])
		}
	}
}

// The clocks of a cluster's primaries differ a little. A renewal is one request all the same.
func TestClocksOfPrimariesDiffer(t *testing.T) {
	t.Parallel()
	var addrs [2]string
	var shards [2]fakeShard
	for i := range shards {
		shards[i].values, shards[i].skew = map[string]string{}, time.Duration(i)*20*time.Millisecond
		shards[i].layout = func(string) string {
			return "*2\r\n" + strings.TrimPrefix(ownedBy(addrs[0], slots), "*1\r\n") +
				strings.TrimPrefix(ownedBy(addrs[1], slots/2), "*1\r\n")
		}
		addrs[i] = fakeStore(t, shards[i].answer)
	}
	l := openAt(t, "redis://"+addrs[0]+"/?cluster=true&replicas=0", unprobed)
	leases := map[string]driver.Lease{}
	for i := range 10 {
		name := fmt.Sprint("n", i)
		lease, err := l.TryAcquire(t.Context(), request(name, "a"))
		if err != nil {
			t.Fatal(err)
		}
		leases[name] = lease
	}
	gets := func() (n [2]int) {
		for i := range shards {
			shards[i].mu.Lock()
			n[i] = shards[i].gets
			shards[i].mu.Unlock()
		}
		return n
	}
	before := gets()
	for range 10 {
		for name, lease := range leases {
			next, err := l.Renew(t.Context(), lease)
			if err != nil {
				t.Fatal(err)
			}
			leases[name] = next
		}
	}
	if after := gets(); after != before || before[0] == 0 || before[1] == 0 {
		t.Errorf("%v values were read, %v before the renewals", after, before)
	}
}

// What a replica answers may be old. So a server that has become one is neither asked nor believed, with connections that were open or
// with others.
func TestReplicaIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		s := redistest.Start(t)
		own := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Password: redistest.Password, Protocol: protocol})
		defer func() { _ = own.Close() }()
		l, err := New(t.Context(), own, WithCommandTimeout(300*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
		lease, err := l.TryAcquire(t.Context(), request("n", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := own.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.store.Put(t.Context(), "n", []byte("x"), "another version"); err == nil || errors.Is(err, cas.ErrConflict) {
			t.Errorf("protocol %d: a write was compared with an old value: %v", protocol, err)
		}
		_, inspected := l.Inspect(t.Context(), "n")
		_, batch := l.InspectBatch(t.Context(), "", []string{"n", "m"})
		_, held := l.TryAcquire(t.Context(), request("n", "b"))
		_, renewed := l.Renew(t.Context(), lease)
		stale := driver.Lease{Name: "n", ID: driver.NewLeaseID("other"), Mode: lease.Mode, TTL: lease.TTL, State: lease.State}
		_, lost := l.Renew(t.Context(), stale)
		opened := func() error {
			_, err := Open(t.Context(), s.URL(), WithCommandTimeout(300*time.Millisecond))
			return err
		}()
		said := false
		for what, err := range map[string]error{"inspect": inspected, "batch": batch[0], "acquire": held, "renew": renewed,
			"renew another": lost, "release": l.Release(t.Context(), stale), "open": opened} {
			if err == nil || driver.OutcomeKnown(err) {
				t.Errorf("protocol %d: %s: %v", protocol, what, err)
			} else if strings.Contains(err.Error(), "replica") {
				said = true
			}
		}
		if !said {
			t.Errorf("protocol %d: no error says why", protocol)
		}
		reader, err := driver.OpenForReading(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Close(context.WithoutCancel(t.Context())) }()
		if r, err := reader.Inspect(t.Context(), "n"); err != nil || r.Owner != "owner a" {
			t.Errorf("for reading, a replica is good enough: %v, %v", r, err)
		}
		if err := own.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Renew(t.Context(), lease); err != nil {
			t.Errorf("it is the primary again: %v", err)
		}
	}
}

// When a server becomes a replica, and its address leads to the new primary from now on, no connection stays with it: neither for
// requests nor for notifications.
func TestFormerPrimaryIsLeft(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t, "--masterauth", redistest.Password)
	second := redistest.StartReplica(t, first)
	awaitReplicas(t, first, "1")
	var leads atomic.Pointer[redistest.Server]
	leads.Store(first)
	own := goredis.NewClient(&goredis.Options{Addr: "primary:1", Password: redistest.Password, ClientName: "the-locker",
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", leads.Load().Addr())
		}})
	defer func() { _ = own.Close() }()
	l, err := New(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan driver.Wakeup, 100)
	stop := l.Capabilities().Waker.Wake("n", "", func(up driver.Wakeup) { woken <- up })
	defer stop()
	<-woken // it has begun
	for _, to := range []struct {
		s          *redistest.Server
		host, port string
	}{{second, "NO", "ONE"}, {first, "127.0.0.1", portOf(second)}} {
		if err := client(t, to.s.Addr()).Do(t.Context(), "REPLICAOF", to.host, to.port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	leads.Store(second)
	awaitReplicas(t, second, "1")
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	subscribed := func() bool {
		n, err := client(t, second.Addr()).PubSubNumSub(t.Context(), l.store.channel("n")).Result()
		return err == nil && n[l.store.channel("n")] == 1
	}
	for end := time.Now().Add(time.Minute); !subscribed(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new primary has no subscription")
		}
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	list, err := client(t, first.Addr()).ClientList(t.Context()).Result()
	if err != nil || strings.Contains(list, "the-locker") {
		t.Errorf("connections to the former primary: %s, %v", list, err)
	}
}

func portOf(s *redistest.Server) string {
	_, port, _ := strings.Cut(s.Addr(), ":")
	return port
}

// A circuit breaker of the program's client refuses no request of the Locker.
func TestLimiterOfTheProgram(t *testing.T) {
	t.Parallel()
	own := goredis.NewClient(&goredis.Options{Addr: redistest.Start(t).Addr(), Password: redistest.Password, Limiter: refuseAll{}})
	defer func() { _ = own.Close() }()
	l, err := New(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

type refuseAll struct{}

func (refuseAll) Allow() error       { return errors.New("too many errors of others") }
func (refuseAll) ReportResult(error) {}
