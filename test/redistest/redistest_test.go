package redistest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

func ask(tb testing.TB, s *Server, command string) string {
	tb.Helper()
	answer, err := Ask(tb.Context(), s.Addr(), command)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}

// Tests share a server, and each has a prefix of its own.
func TestSharedServer(t *testing.T) {
	if first, second := URL(t), URL(t); first == second || !strings.HasPrefix(first, "redis://") {
		t.Errorf("%q, %q", first, second)
	}
	if os.Getenv(EnvURL) == "" && ask(t, Shared(t), "PING") != "+PONG" {
		t.Error(ask(t, Shared(t), "PING"))
	}
}

// A replica follows its server, which can be killed and started again with its data.
func TestReplicaAndRestart(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	replica := StartReplica(t, s)
	if got := ask(t, s, "SET key value"); got != "+OK" {
		t.Fatal(got)
	}
	for end := time.Now().Add(30 * time.Second); ask(t, replica, "STRLEN key") != ":5"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(ask(t, replica, "STRLEN key"))
		}
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "STRLEN key"); got != ":5" {
		t.Error(got)
	}
}
