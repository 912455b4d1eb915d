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
	renewed := func() (count int, answered bool) {
		http.DefaultClient.CloseIdleConnections() // each time a connection of its own, as probes have
		answer, err := answerTo(ts, []string{args[0], "/metrics"})
		if err != nil { // while the others arrive, a connection that waits for its turn may be the idle one that is closed
			return 0, false
		}
		if found := renewals.FindSubmatch(answer); found != nil {
			count, err = strconv.Atoi(string(found[1]))
			ts.Check(err)
		}
		return count, true
	}
	before, answered := 0, false
	await(ts, func() bool {
		before, answered = renewed()
		return answered
	}, func() string { return args[0] + " does not answer" })
	await(ts, func() bool {
		count, _ := renewed()
		return count >= before+3
	}, func() string { return args[0] + " does not renew its lock:\n" + ts.ReadFile(args[0]+".err") })
}
