package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// wantUnknown fails unless the error leaves the outcome open.
func wantUnknown(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error, want an unknown outcome")
	}
	if driver.OutcomeKnown(err) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// victim is the URL for connections that [victims] finds.
func victim(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", "victim")
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // PostgreSQL does not know "+" for a space
	return u.String()
}

// waitsFor returns the backend of a victim that waits for an event of this type, such as Lock or SyncRep.
func waitsFor(t testing.TB, c *pgx.Conn, event string) (pid int) {
	t.Helper()
	own := "" // other tests have victims on the shared server
	if event == "SyncRep" {
		own = scan[string](t, c, `SELECT max(datname) FROM pg_stat_activity WHERE application_name = 'victim'`) // the server is the test's
	}
	postgrestest.WaitFor(t, "a victim waits for "+event, func() bool {
		err := c.QueryRow(bounded(t), `SELECT pid FROM pg_stat_activity
			WHERE application_name = 'victim' AND datname IN (current_database(), $2)
				AND state = 'active' AND $1 IN (wait_event_type, wait_event)`, event, own).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pid
}

// later runs an operation, and returns a function that waits for its result.
func later(f func() error) (wait func(testing.TB) error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func(t testing.TB) error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			t.Fatal("a call did not return")
			return nil
		}
	}
}

// network is between a Locker and a server, and has faults.
type network struct {
	addr string

	mu    sync.Mutex
	fault fault
	conns map[net.Conn]bool
}

// fault is one of a network.
type fault int

const (
	healthy   fault = iota
	silent          // nothing arrives, and connections stay open
	resetting       // the next request is lost with its connection
	forgetful       // the next request arrives; its answer is lost with the connection
)

// throughNetwork returns a network in front of a server, and the URL through it.
func throughNetwork(t testing.TB, raw string) (*network, string) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{addr: listener.Addr().String(), conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	server := u.Host
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { n.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.closeAll()
		wg.Wait()
	})
	u.Host = n.addr
	return n, u.String()
}

// set sets the fault of the following requests and answers.
func (n *network) set(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
}

func (n *network) closeAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = healthy
	for c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) keep(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = true
}

func (n *network) serve(client net.Conn, addr string) {
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		_ = client.Close()
		return
	}
	n.keep(client)
	n.keep(server)
	var wg sync.WaitGroup
	wg.Go(func() { n.copy(server, client, true) })
	wg.Go(func() { n.copy(client, server, false) })
	wg.Wait()
}

// copy passes on what it reads, until the connection ends or a fault strikes.
func (n *network) copy(to io.WriteCloser, from net.Conn, request bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		size, err := from.Read(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		f := n.fault
		if f == resetting || f == forgetful && !request {
			n.fault = healthy
		}
		n.mu.Unlock()
		switch {
		case f == resetting || f == forgetful && !request:
			return
		case f == silent:
			continue
		}
		if _, err := to.Write(buffer[:size]); err != nil {
			return
		}
	}
}
