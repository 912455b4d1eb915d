package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/redistest"
)

// awaitReplicas waits until so many replicas are connected, and confirm a write.
func awaitReplicas(t *testing.T, s *redistest.Server, n string) {
	t.Helper()
	awaitConnected(t, s, n)
	locktest.Eventually(t, "the replicas confirm a write", func() bool {
		pipe := client(t, s.Addr()).Pipeline()
		pipe.Set(t.Context(), "awaited", n, 0)
		confirmed := pipe.Do(t.Context(), "WAIT", n, time.Second.Milliseconds())
		_, _ = pipe.Exec(t.Context())
		by, err := confirmed.Int()
		return err == nil && by >= int(n[0]-'0')
	})
}

// awaitConnected waits until so many replicas are connected.
func awaitConnected(t *testing.T, s *redistest.Server, n string) {
	t.Helper()
	c := client(t, s.Addr())
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		info, err := c.Info(t.Context(), "replication").Result()
		if err == nil && fieldOf(info, "connected_slaves") == n && strings.Count(info, "state=online") == int(n[0]-'0') {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not %s replicas: %s, %v", n, info, err)
		}
	}
}

// expected is how many replicas a Locker knows of the only primary.
func expected(l *Locker) int { return l.store.expected(l.store.servers.some()) }

// learn has the next write ask how many replicas are connected.
func learn(l *Locker) { l.store.servers.replicasOf(l.store.servers.some()).askedAt.Store(0) }

// A grant waits for a majority. If the replica does not confirm it, it is undone and counts as no grant, and a renewal fails.
func TestGrantNeedsTheReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	replica := redistest.StartReplica(t, s)
	awaitReplicas(t, s, "1")
	l := openAt(t, s.URL(), WithCommandTimeout(2*time.Second))
	if n := expected(l); n != 1 {
		t.Fatalf("%d replicas are known", n)
	}
	held, err := l.TryAcquire(t.Context(), request("held", "a"))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := client(t, replica.Addr()).Get(t.Context(), defaultPrefix+"held").Result()
	if err != nil || !strings.Contains(copied, "owner a") {
		t.Errorf("the replica of an acknowledged grant has %q, %v", copied, err)
	}
	for what, stop := range map[string]func() error{"paused": replica.Pause, "killed": replica.Kill} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		lease, err := l.TryAcquire(t.Context(), request(what, "a"))
		if !errors.Is(err, cas.ErrNotSafe) || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s: granted %v, %v", what, lease, err)
		}
		if r, err := l.Inspect(t.Context(), what); err != nil || r.State != driver.StateFree {
			t.Errorf("%s: %v, %v, want a free lock: the grant was undone", what, r, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if _, err := l.Renew(ctx, held); err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: renewed: %v", what, err)
		}
		cancel()
		if what == "paused" {
			if err := replica.Resume(); err != nil {
				t.Fatal(err)
			}
		} else if err := replica.Restart(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		awaitReplicas(t, s, "1")
		if _, err := l.TryAcquire(t.Context(), request(what, "b")); err != nil {
			t.Errorf("%s, and back: %v", what, err)
		}
		if held, err = l.Renew(t.Context(), held); err != nil {
			t.Errorf("%s, and back: %v", what, err)
		}
	}
	if err := replica.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := openAt(t, s.URL(), WithReplicas(0)).TryAcquire(t.Context(), request("alone", "a")); err != nil {
		t.Errorf("nothing is to wait: %v", err)
	}
	if _, err := openAt(t, s.URL(), WithReplicas(3), unprobed).TryAcquire(t.Context(),
		request("three", "a")); !errors.Is(err, cas.ErrNotSafe) {
		t.Errorf("of three replicas: %v", err)
	}
}

// A program can start while replicas are missing. It is granted nothing, and the error says why.
func TestOpenWithoutTheReplica(t *testing.T) {
	t.Parallel()
	l := openAt(t, redistest.Start(t).URL(), WithReplicas(1))
	_, err := l.TryAcquire(t.Context(), request("n", "a"))
	if !errors.Is(err, cas.ErrNotSafe) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("granted without the replica: %v", err)
	}
}

func TestMajority(t *testing.T) {
	for replicas, want := range []int{0, 1, 1, 2, 2, 3} {
		if got := majority(replicas); got != want {
			t.Errorf("%d of %d replicas, want %d", got, replicas, want)
		}
	}
}

// A replica that is made while a program runs counts from the next write that asks for it.
func TestReplicaThatComesLater(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL())
	if n := expected(l); n != 0 {
		t.Fatalf("%d replicas", n)
	}
	redistest.StartReplica(t, s)
	awaitReplicas(t, s, "1")
	learn(l)
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); !errors.Is(err, cas.ErrNotSafe) || expected(l) != 1 {
		t.Errorf("the first write that saw the replica did not wait for it, and counts: %v", err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Error(err)
	}
}

// A user who may not wait for replicas is granted nothing that stays: the write that was done before the refusal is undone.
func TestWithoutWait(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var rights []any
	for _, r := range leastRights {
		if r != "+wait" {
			rights = append(rights, r)
		}
	}
	l := openAt(t, makeUser(t, s, rights...), WithReplicas(1))
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if !errors.Is(err, cas.ErrNotSafe) || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), "WAIT") &&
		!strings.Contains(err.Error(), "'wait'") {
		t.Errorf("granted %v, %v", lease, err)
	}
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Errorf("%v, %v, want a free lock", r, err)
	}
}

// A program that copies the data, as a backup does, is no replica: it goes away, and nothing waits for it then.
func TestBackupIsNoReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := openAt(t, s.URL())
	backup, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	const ok = "+OK\r\n"
	got := make([]byte, len(ok))
	if _, err := fmt.Fprintf(backup, "AUTH %s\r\n", redistest.Password); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(backup, got); err != nil || string(got) != ok {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := fmt.Fprint(backup, "SYNC\r\n"); err != nil {
		t.Fatal(err)
	}
	var copied sync.WaitGroup
	copied.Go(func() { _, _ = io.Copy(io.Discard, backup) })
	defer copied.Wait()
	defer func() { _ = backup.Close() }()
	awaitConnected(t, s, "1")
	learn(l)
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil || expected(l) != 0 {
		t.Errorf("%d replicas, %v", expected(l), err)
	}
	wantFinding(t, examine(t, s.URL()), subjectReplicas, driver.LevelOK, "none")
}
