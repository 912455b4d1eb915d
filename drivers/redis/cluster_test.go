package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{"123456789": 12739, "foo": 12182, "a{foo}b{c}": 12182, "{}foo": 9500, "": 0} {
		if got := slotOf(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

func TestAddressFrom(t *testing.T) {
	for text, want := range map[string]string{"h:1": "h:1", ":1": "s:1", "?:1": "s:1", "::1:2": "[::1]:2", "[::1]:2": "[::1]:2", "x": ""} {
		if got, ok := addressFrom("s:9", text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

// clusterURL is that of a cluster, by some of its servers.
func clusterURL(s ...*redistest.Server) string {
	var addrs []string
	for _, one := range s {
		addrs = append(addrs, one.Addr())
	}
	return with(redistest.At(strings.Join(addrs, ",")), "cluster=true")
}

// nodeOf is the client of the server of a cluster that has a lock.
func nodeOf(t *testing.T, l *Locker, name string) *goredis.Client {
	t.Helper()
	c, err := l.store.servers.primaryOf(t.Context(), l.store.key(lockrecord.Key(name)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nameOn is the name of a lock that a server of a cluster has.
func nameOn(t *testing.T, l *Locker, s *redistest.Server, prefix string) string {
	t.Helper()
	for i := 0; ; i++ {
		if name := fmt.Sprint(prefix, i); nodeOf(t, l, name).Options().Addr == s.Addr() {
			return name
		}
	}
}

// The servers of a cluster share the locks, and each is one key of one of them.
func TestCluster(t *testing.T) {
	serverprocess.Long(t, "starts a cluster of six servers")
	t.Parallel()
	primaries, replicas := redistest.StartCluster(t, 3)
	at := clusterURL(primaries[1], replicas[2])
	l := openAt(t, at)
	for _, s := range primaries {
		if n := l.store.expected(nodeOf(t, l, nameOn(t, l, s, "counted"))); n != 1 {
			t.Errorf("%d replicas are known", n)
		}
	}
	var names []string
	for i := range 1200 {
		names = append(names, fmt.Sprintf("many/%04d", i))
	}
	t.Run("batches and lists", func(t *testing.T) {
		var work sync.WaitGroup
		for part := range slices.Chunk(names, 100) {
			work.Go(func() {
				for _, name := range part {
					if _, err := l.TryAcquire(t.Context(), request(name, "a")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		records, errs := l.InspectBatch(t.Context(), "", names)
		if err := errors.Join(errs...); err != nil || slices.ContainsFunc(records, func(r driver.Record) bool { return r.Owner != "owner a" }) {
			t.Error(err)
		}
		var listed []string
		for r, err := range l.List(t.Context(), "many/") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, r.Name)
		}
		if !slices.Equal(listed, names) {
			t.Errorf("%d of %d are listed", len(listed), len(names))
		}
	})
	t.Run("a slot moves, with the rights of the page", func(t *testing.T) {
		for _, s := range append(append([]*redistest.Server{}, primaries...), replicas...) {
			makeUser(t, s, append(slices.Clone(leastRights), "+cluster|slots", "+cluster|nodes", "+asking")...)
		}
		limited := openAt(t, strings.Replace(at, ":"+redistest.Password, appUser+":"+appPassword, 1))
		clusterSlotMoves(t, limited, primaries[0], primaries[2])
	})
	t.Run("without and with cluster=true", func(t *testing.T) {
		_, err := Open(t.Context(), primaries[0].URL())
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "cluster=true") {
			t.Error(err)
		}
		_, err = Open(t.Context(), clusterURL(redistest.Start(t)))
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "no Redis Cluster") {
			t.Error(err)
		}
	})
	t.Run("check", func(t *testing.T) {
		found := map[string]int{}
		if err := l.Check(t.Context(), func(f driver.Finding) { found[f.Subject]++ }); err != nil {
			t.Fatal(err)
		}
		if found[subjectServer] != 3 || found[subjectReplicas] != 3 || found[subjectGrade] != 1 || found[subjectWaking] != 1 {
			t.Error(found)
		}
	})
	t.Run("a program's own client", func(t *testing.T) {
		own := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{replicas[0].Addr()}, Password: redistest.Password})
		defer func() { _ = own.Close() }()
		mine, err := New(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = mine.Close(context.WithoutCancel(t.Context())) }()
		if _, err := mine.TryAcquire(t.Context(), request(names[0], "b")); !errors.Is(err, driver.ErrHeld) {
			t.Error(err)
		}
	})
	t.Run("suite", func(t *testing.T) {
		lockertest.Run(t, lockertest.Config{
			New: func(t *testing.T) driver.Locker { return openAt(t, at, WithPrefix("suite:")) },
			Forget: func(ctx context.Context, name string) error {
				key := "suite:" + lockrecord.Key(name)
				c, err := l.store.servers.primaryOf(ctx, key)
				if err != nil {
					return err
				}
				return c.Del(ctx, key).Err()
			},
			ClockStep: clusterClocks,
			Without:   []string{"Damage", "Deny", "FailOver", "Stall"},
		})
	})
	t.Run("a replica is forgotten", func(t *testing.T) { clusterForgets(t, at, primaries, replicas) })
	t.Run("fail-over", func(t *testing.T) { clusterFailsOver(t, at, l, primaries, replicas) })
}

// clusterSlotMoves moves the slot of a lock. While it moves, the server that has it says ASK, and later MOVED.
func clusterSlotMoves(t *testing.T, l *Locker, from, to *redistest.Server) {
	t.Helper()
	name := nameOn(t, l, from, "moving")
	key := l.store.key(lockrecord.Key(name))
	slot, source, target := slotOf(key), client(t, from.Addr()), client(t, to.Addr())
	id := func(c *goredis.Client) string {
		t.Helper()
		text, err := c.Do(t.Context(), "CLUSTER", "MYID").Text()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	set := func(c *goredis.Client, args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(target, "IMPORTING", id(source))
	set(source, "MIGRATING", id(target))
	lease, err := l.TryAcquire(t.Context(), request(name, "a"))
	if err != nil {
		t.Fatalf("while the slot moves: %v", err)
	}
	if _, err := l.TryAcquire(t.Context(), request(name, "b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("while the slot moves: %v", err)
	}
	if n, err := source.Exists(t.Context(), key).Result(); err == nil && n != 0 {
		t.Error("it is at the old server")
	}
	records, errs := l.InspectBatch(t.Context(), "", []string{name, "other"})
	if records[0].Owner != "owner a" || errors.Join(errs...) != nil {
		t.Errorf("a batch while the slot moves: %+v, %v", records, errs)
	}
	set(target, "NODE", id(target))
	set(source, "NODE", id(target))
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Errorf("after the slot has moved: %v", err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Errorf("after the slot has moved: %v", err)
	}
}

// clusterForgets removes a replica. Until the cluster was told to forget it, its primary grants nothing; the other primaries do.
func clusterForgets(t *testing.T, at string, primaries, replicas []*redistest.Server) {
	t.Helper()
	l := openAt(t, at, WithCommandTimeout(time.Second))
	gone, err := redistest.Ask(t.Context(), replicas[0].Addr(), "CLUSTER MYID")
	if err == nil {
		err = replicas[0].Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	name := nameOn(t, l, primaries[0], "forgotten")
	if _, err := l.TryAcquire(t.Context(), request(name, "a")); !errors.Is(err, cas.ErrNotSafe) || !strings.Contains(err.Error(), "FORGET") {
		t.Errorf("without the replica: %v", err)
	}
	if _, err := l.TryAcquire(t.Context(), request(nameOn(t, l, primaries[1], "forgotten"), "a")); err != nil {
		t.Errorf("a primary with its replica: %v", err)
	}
	for _, s := range append(slices.Clone(primaries), replicas[1:]...) {
		answer, err := redistest.Ask(t.Context(), s.Addr(), "CLUSTER FORGET "+gone)
		if err != nil || answer != "+OK" && !strings.Contains(answer, "Unknown node") { // another has told it
			t.Fatal(answer, err)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // the layout is loaded again
		_, err := l.TryAcquire(t.Context(), request(name, "a"))
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the replica was forgotten: %v", err)
		}
	}
}

// clusterFailsOver kills a primary while clients compete for locks of all primaries.
func clusterFailsOver(t *testing.T, at string, l *Locker, primaries, replicas []*redistest.Server) {
	t.Helper()
	c := castest.Competition{Faults: 1, Fault: func(int) error {
		if err := primaries[1].Kill(); err != nil {
			return err
		}
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			role, err := client(t, replicas[1].Addr()).Info(t.Context(), "replication").Result()
			if err == nil && fieldOf(role, "role") == "master" {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("no fail-over: %s, %w", role, err)
			}
		}
		return primaries[1].Restart(context.WithoutCancel(t.Context())) // grants wait for it, as a replica
	}}
	for i, s := range primaries {
		c.Names = append(c.Names, nameOn(t, l, s, fmt.Sprint("contested", i, "-")))
	}
	for range 3 {
		c.Lockers = append(c.Lockers, openAt(t, at, WithCommandTimeout(time.Second), unprobed))
	}
	castest.Compete(t, c)
	if _, err := l.Inspect(t.Context(), c.Names[1]); err != nil {
		t.Error(err)
	}
	locktest.Eventually(t, "the layout that is known has the locks of the primary that was killed at its replica", func() bool {
		return nodeOf(t, l, c.Names[1]).Options().Addr == replicas[1].Addr()
	})
}
