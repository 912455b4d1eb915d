package redis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Sentinel names the primary. After a fail-over the Locker goes on at the new one, with the locks that it had, and under greater tokens.
func TestSentinel(t *testing.T) {
	serverprocess.Long(t, "waits for a fail-over")
	t.Parallel()
	always := []string{"--appendonly", "yes", "--appendfsync", "always", "--masterauth", redistest.Password}
	primary := redistest.Start(t, always...)
	replica := redistest.StartReplica(t, primary, always...)
	awaitReplicas(t, primary, "1")
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	text := strings.Join([]string{
		fmt.Sprintf("sentinel monitor main %s %s 1", host, port), "sentinel auth-pass main " + redistest.Password,
		"sentinel down-after-milliseconds main 1000", "sentinel failover-timeout main 10000", "",
	}, "\n")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := redistest.StartSentinel(t, config)
	asked := goredis.NewSentinelClient(&goredis.Options{Addr: sentinel.Addr(), Password: redistest.Password})
	defer func() { _ = asked.Close() }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // it asks the primary for its replicas
		replicas, err := asked.Replicas(t.Context(), "main").Result()
		if err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Sentinel knows the replicas %v, %v", replicas, err)
		}
	}
	at := fmt.Sprintf("redis://:%s@%s/0?master=main&sentinelPassword=%s", redistest.Password, sentinel.Addr(), redistest.Password)
	l := openAt(t, at)
	held, err := l.TryAcquire(t.Context(), request("held", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		addr, err := asked.GetMasterAddrByName(t.Context(), "main").Result()
		if err == nil && strings.Join(addr, ":") == replica.Addr() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the primary is %v, %v", addr, err)
		}
	}
	if r, err := l.Inspect(t.Context(), "held"); err != nil || r.Token != held.Token {
		t.Errorf("%v, %v, want the grant of before", r, err)
	}
	// The only replica is the primary now: grants wait for the old one.
	if _, err := l.TryAcquire(t.Context(), request("n", "b")); err == nil {
		t.Error("a grant without a majority")
	}
	// So does a process that has just started: Sentinel knows of the old one.
	fresh := openAt(t, at, unprobed)
	if _, err := fresh.TryAcquire(t.Context(), request("n", "c")); err == nil || expected(fresh) != 1 {
		t.Errorf("a fresh process knows of %d replicas: %v", expected(fresh), err)
	}
	if err := primary.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		next, err := l.TryAcquire(t.Context(), request("n", "b"))
		if err == nil && next.Token > held.Token {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v, %v", next, err)
		}
	}
	if _, err := l.Renew(t.Context(), held); err != nil {
		t.Error(err)
	}
}

// When Sentinel names another primary, no connection stays with the former one, although that answers still, and takes writes: it is cut
// off from Sentinel, and will be forgotten.
func TestSentinelNamesAnother(t *testing.T) {
	serverprocess.Long(t, "waits until Sentinel is asked again")
	t.Parallel()
	former, next := redistest.Start(t), redistest.Start(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	monitor := func(s *redistest.Server) string {
		host, port, _ := strings.Cut(s.Addr(), ":")
		return fmt.Sprintf("sentinel monitor main %s %s 1", host, port)
	}
	if err := os.WriteFile(config, []byte(monitor(former)+"\nsentinel auth-pass main "+redistest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := redistest.StartSentinel(t, config)
	l := openAt(t, fmt.Sprintf("redis://:%s@%s/0?master=main&sentinelPassword=%s", redistest.Password, sentinel.Addr(), redistest.Password))
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"sentinel remove main", monitor(next)} {
		if answer, err := redistest.Ask(t.Context(), sentinel.Addr(), command); err != nil || answer != "+OK" {
			t.Fatal(command, answer, err)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		lease, err := l.TryAcquire(t.Context(), request("n", "b")) // held at the former one, and free at the next
		if err == nil {
			if err := l.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it asks the former primary: %v", err)
		}
	}
	if n, err := client(t, next.Addr()).Exists(t.Context(), defaultPrefix+"n").Result(); err != nil || n != 1 {
		t.Errorf("%d keys at the primary, %v", n, err)
	}
}
