package etcdtest

import (
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// Tests share a cluster, and each has a prefix of its own.
func TestSharedCluster(t *testing.T) {
	if first, second := URL(t), URL(t); first == second || !strings.HasPrefix(first, "etcd") {
		t.Errorf("%q, %q", first, second)
	}
}

// A key survives a crash of one member of three, and a restore brings back what there was before.
func TestClusterAndRestore(t *testing.T) {
	all := StartCluster(t, 3)
	key := map[string]any{"key": []byte("key"), "value": []byte("value")}
	if _, err := all[0].Ask(t.Context(), "", "/v3/kv/put", key); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	has := func(s *Server, want bool) {
		t.Helper()
		answer, err := s.Ask(t.Context(), "", "/v3/kv/range", map[string]any{"key": []byte("key")})
		if err != nil || strings.Contains(string(answer), "mod_revision") != want {
			t.Errorf("%s, %v, want a value: %v", answer, err, want)
		}
	}
	has(all[0], true)
	one := Start(t)
	restore, err := one.Backup(t.Context(), t.TempDir()+"/backup")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Ask(t.Context(), "", "/v3/kv/put", key); err != nil {
		t.Fatal(err)
	}
	has(one, true)
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	has(one, false)
}
