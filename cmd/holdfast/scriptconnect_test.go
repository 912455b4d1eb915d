//go:build unix

package main

import (
	"net"
	"net/http"
	"regexp"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// renewals matches how often a process has renewed its lock.
var renewals = regexp.MustCompile(`(?m)^holdfast_client_operation_duration_seconds_count\{[^}]*operation="renew"\} (\d+)$`)

// connect NAME N opens N connections to what was started under a name, and leaves them idle: half of them send a request
// first. It then waits until the lock has been renewed three times more.
func cmdConnect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: connect NAME N")
	}
	address := servedAddress.FindStringSubmatch(ts.ReadFile(args[0] + ".err"))
	if address == nil {
		ts.Fatalf("%s has no address", args[0])
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for i := range n {
		conn, err := net.Dial("tcp", address[1])
		ts.Check(err)
		ts.Defer(func() { _ = conn.Close() })
		if i%2 == 0 {
			_, err = conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
			ts.Check(err)
		}
	}
	renewed := func() int {
		http.DefaultClient.CloseIdleConnections() // each time a connection of its own, as probes have
		cmdAsk(ts, false, []string{args[0], "/metrics"})
		found := renewals.FindStringSubmatch(ts.ReadFile("answer"))
		if found == nil {
			return 0
		}
		count, err := strconv.Atoi(found[1])
		ts.Check(err)
		return count
	}
	before := renewed()
	await(ts, func() bool { return renewed() >= before+3 }, func() string {
		return args[0] + " does not renew its lock:\n" + ts.ReadFile(args[0]+".err")
	})
}
