package integration

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/fault"
)

// link is a way to a backend on which faults happen. What a fault does, it does to
// all connections, also to those that are open.
type link struct {
	fault.Mesh
	tb testing.TB
}

// newLink makes a link without faults, which ends with the test.
func newLink(tb testing.TB, hosts ...string) *link {
	tb.Helper()
	return &link{fault.NewMesh(tb, hosts), tb}
}

func (l *link) each(cause func(*fault.Proxy) error) {
	l.tb.Helper()
	if err := l.Each(cause); err != nil {
		l.tb.Fatal(err)
	}
}

// loseReplies has requests arrive and no reply come back; connections stay open.
func (l *link) loseReplies() { l.tb.Helper(); l.each((*fault.Proxy).LoseReplies) }

// lateReplies has replies come later by d.
func (l *link) lateReplies(d time.Duration) {
	l.tb.Helper()
	l.each(func(p *fault.Proxy) error { return p.LateReplies(d) })
}

// slow has requests and replies come later by d, or by up to jitter more or less.
func (l *link) slow(d, jitter time.Duration) {
	l.tb.Helper()
	l.each(func(p *fault.Proxy) error { return p.Latency(d, jitter) })
}

// hang has nothing arrive, either way; connections stay open.
func (l *link) hang() { l.tb.Helper(); l.each((*fault.Proxy).HalfOpen) }

// reset has every connection reset.
func (l *link) reset() { l.tb.Helper(); l.each((*fault.Proxy).Reset) }

// cut breaks every connection and refuses new ones.
func (l *link) cut() { l.tb.Helper(); l.each((*fault.Proxy).Cut) }

// heal ends all faults. Connections on which something was lost are closed.
func (l *link) heal() { l.tb.Helper(); l.each((*fault.Proxy).Restore) }
