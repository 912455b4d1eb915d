package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// slots is how many parts the keys of a cluster have.
const slots = 1 << 14

// StartCluster starts a Redis Cluster of so many primaries, each with a replica, for this test alone. Replica i is that of primary i.
func StartCluster(tb testing.TB, n int) (primaries, replicas []*Server) {
	tb.Helper()
	bus := map[*Server]string{} // the ports on which they speak to each other
	start := func() *Server {
		s, port := startNode(tb)
		bus[s] = port
		return s
	}
	for range n {
		primaries, replicas = append(primaries, start()), append(replicas, start())
	}
	for i, s := range primaries {
		mustAsk(tb, s, fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1), "+OK")
		mustAsk(tb, s, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/n, (i+1)*slots/n-1), "+OK")
	}
	all := append(append([]*Server{}, primaries...), replicas...)
	for _, s := range all[1:] {
		host, port, _ := net.SplitHostPort(s.Addr())
		mustAsk(tb, primaries[0], fmt.Sprintf("CLUSTER MEET %s %s %s", host, port, bus[s]), "+OK")
	}
	for _, s := range all {
		await(tb, s, "CLUSTER INFO", fmt.Sprintf("cluster_known_nodes:%d\r", len(all)))
	}
	for i, s := range replicas {
		mustAsk(tb, s, "CLUSTER REPLICATE "+mustAsk(tb, primaries[i], "CLUSTER MYID", ""), "+OK")
	}
	for _, s := range primaries {
		await(tb, s, "INFO replication", "state=online")
	}
	for _, s := range all {
		await(tb, s, "CLUSTER INFO", "cluster_state:ok")
		awaitThat(tb, s, "CLUSTER NODES", fmt.Sprint(n, " replicas"), func(answer string) bool { // others tell it later
			return strings.Count(answer, "slave ") == n
		})
	}
	return primaries, replicas
}

func startNode(tb testing.TB) (s *Server, bus string) {
	tb.Helper()
	bus = serverprocess.ReservePort(tb)
	return Start(tb, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "3000",
		"--masterauth", Password, "--appendonly", "yes", "--appendfsync", "always"), bus
}

func mustAsk(tb testing.TB, s *Server, command, want string) string {
	tb.Helper()
	answer, err := Ask(context.WithoutCancel(tb.Context()), s.Addr(), command)
	if err != nil || want != "" && answer != want {
		tb.Fatalf("%s: %q, %v", command, answer, err)
	}
	return answer
}

// await waits until the answer to a command has a text.
func await(tb testing.TB, s *Server, command, text string) {
	tb.Helper()
	awaitThat(tb, s, command, text, func(answer string) bool { return strings.Contains(answer, text) })
}

// awaitThat waits until an answer is as it is wanted.
func awaitThat(tb testing.TB, s *Server, command, want string, is func(answer string) bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer, err := Ask(tb.Context(), s.Addr(), command)
		if err == nil && is(answer) {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%s lacks %q: %s, %v", command, want, answer, err)
		}
	}
}
