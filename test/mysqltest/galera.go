package mysqltest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// StartGalera starts a Galera cluster of so many nodes for this test alone. Where there is no library of Galera, the test is skipped, and
// fails where the variable CI is set. A node that was killed cannot come back: nothing brings it the writes that it has missed.
func StartGalera(tb testing.TB, n int) []*Server {
	tb.Helper()
	serverprocess.Long(tb, reason)
	m, err := reachable(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if m.Galera == "" {
		serverprocess.Lacking(tb, "there is no library of Galera")
	}
	var nodes []*Server
	var addresses []string
	for i := range n {
		own := serverprocess.ReserveAddress(tb)
		addresses = append(addresses, own)
		common := []string{"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + m.Galera,
			"--wsrep-sst-method=" + transferMethod, "--wsrep-node-address=" + own,
			"--wsrep-provider-options=gmcast.listen_addr=tcp://" + own + ";ist.recv_addr=" + serverprocess.ReserveAddress(tb) + ";gcache.size=16M"}
		args := append(common[:len(common):len(common)], "--wsrep-cluster-address=gcomm://"+strings.Join(addresses, ","))
		if i == 0 {
			args = append(args, "--wsrep-new-cluster")
		}
		nodes = append(nodes, Start(tb, Options{Args: args, Env: []string{"PATH=.:" + os.Getenv("PATH")},
			prepare: func(data string, run func(more ...string) error) error {
				if err := errors.Join(share(data, "wsrep_sst_"+transferMethod, transferScript), share(data, "stop.sql", "SHUTDOWN;\n"),
					share(data, "grastate.dat", firstState)); err != nil {
					return err
				}
				// So the server notes its position in its data.
				return run(append(common, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster", "--skip-networking",
					"--socket="+filepath.Join(data, "s"), "--init-file="+filepath.Join(data, "stop.sql"))...)
			}}))
	}
	return nodes
}

// firstState is that of all nodes before their first start: their data are those of new servers. So a node that joins receives what has
// happened since, and no copy of the data, for which another node would need further programs.
const firstState = "# GALERA saved state\nversion: 2.1\nuuid: 6f6c6466-6173-4000-8000-000000000001\nseqno: 0\nsafe_to_bootstrap: 1\n"

const transferMethod = "none_needed"

// transferScript is the program for that method. The node that joins names a file, in which the other says from which position it sends
// what has happened.
const transferScript = `#!/bin/sh
while [ $# -gt 0 ]; do
	case "$1" in --role) role=$2 ;; --address) address=$2 ;; --gtid) position=$2 ;; esac
	shift
done
if [ "$role" = joiner ]; then
	file=$(mktemp /tmp/holdfast-galera-XXXXXX)
	echo "ready 127.0.0.1:1/$file"
	until [ -s "$file" ]; do sleep 0.1; done
	cat "$file"
	rm "$file"
else
	echo "$position" >"${address#*/}" && echo "done $position"
fi
`
