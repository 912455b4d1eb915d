package mysqltest

import (
	"net"
	"os"
	"strings"
	"testing"
)

// StartGalera starts a Galera cluster of so many nodes for this test alone. Where there is no library of Galera, the test is skipped, and
// fails where the variable CI is set. A node that was killed cannot come back: nothing brings it the writes that it has missed.
func StartGalera(tb testing.TB, n int) []*Server {
	tb.Helper()
	m, err := reachable(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if m.Galera == "" {
		if os.Getenv("CI") != "" {
			tb.Fatal("there is no library of Galera")
		}
		tb.Skip("there is no library of Galera")
	}
	var nodes []*Server
	var addresses []string
	for i := range n {
		own := freeAddress(tb)
		addresses = append(addresses, own)
		args := []string{"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + m.Galera,
			"--wsrep-sst-method=skip", // the data of all nodes are those of new servers
			"--wsrep-cluster-address=gcomm://" + strings.Join(addresses, ","), "--wsrep-node-address=" + own,
			"--wsrep-provider-options=gmcast.listen_addr=tcp://" + own + ";ist.recv_addr=" + freeAddress(tb) +
				";evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;gcache.size=16M"}
		if i == 0 {
			args = append(args, "--wsrep-new-cluster")
		}
		nodes = append(nodes, Start(tb, Options{Args: args}))
	}
	return nodes
}

// freeAddress is an address on which nothing listens now.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
