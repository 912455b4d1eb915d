package mysqltest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { Main(m) }

// Tests share a server, and each has a table of its own.
func TestSharedServer(t *testing.T) {
	if first, second := URL(t), URL(t); first == second || !strings.HasPrefix(first, "mysql://") {
		t.Errorf("%q, %q", first, second)
	}
	if os.Getenv(EnvURL) == "" && !greets(t.Context(), port(Shared(t))) {
		t.Error("the server does not greet")
	}
}

// A server can be killed and started again.
func TestRestart(t *testing.T) {
	s := Start(t, Options{})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if greets(t.Context(), port(s)) {
		t.Error("a server that was killed greets")
	}
	if err := s.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if !greets(t.Context(), port(s)) {
		t.Error("the server does not greet")
	}
}

func port(s *Server) string { return strings.TrimPrefix(s.Addr(), serverprocess.Host+":") }
