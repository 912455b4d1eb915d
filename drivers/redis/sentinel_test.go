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
