package integration

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/fault"
)

// faultyNetwork is a network between a client and a backend on which a test injects faults. A
// fault affects all connections, open and new ones.
type faultyNetwork struct {
	fault.Mesh
	tb testing.TB
}

// newFaultyNetwork makes a network without faults. It ends with the test.
func newFaultyNetwork(tb testing.TB, hosts ...string) *faultyNetwork {
	tb.Helper()
	return &faultyNetwork{fault.NewMesh(tb, hosts), tb}
}

func (n *faultyNetwork) each(inject func(*fault.Proxy) error) {
	n.tb.Helper()
	if err := n.Each(inject); err != nil {
		n.tb.Fatal(err)
	}
}

// loseReplies lets requests arrive and drops the replies. Connections stay open.
func (n *faultyNetwork) loseReplies() { n.tb.Helper(); n.each((*fault.Proxy).LoseReplies) }

// lateReplies delays replies by d.
func (n *faultyNetwork) lateReplies(d time.Duration) {
	n.tb.Helper()
	n.each(func(p *fault.Proxy) error { return p.LateReplies(d) })
}

// slow delays requests and replies by d, give or take up to jitter.
func (n *faultyNetwork) slow(d, jitter time.Duration) {
	n.tb.Helper()
	n.each(func(p *fault.Proxy) error { return p.Latency(d, jitter) })
}

// hang drops everything in both directions. Connections stay open.
func (n *faultyNetwork) hang() { n.tb.Helper(); n.each((*fault.Proxy).HalfOpen) }

// reset resets every connection.
func (n *faultyNetwork) reset() { n.tb.Helper(); n.each((*fault.Proxy).Reset) }

// cut closes every connection and refuses new ones.
func (n *faultyNetwork) cut() { n.tb.Helper(); n.each((*fault.Proxy).Cut) }

// restore ends all faults. Connections on which data was dropped are closed.
func (n *faultyNetwork) restore() { n.tb.Helper(); n.each((*fault.Proxy).Restore) }
