package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// Measured is an operation whose beginning was reported to the Client's hook. It is nil without a hook,
// and then reports nothing. It is the context with which the operation continues.
type Measured struct {
	context.Context
	client   *Client
	op       telemetry.Operation
	start    time.Duration
	lost     atomic.Bool   // of a hold: the loss is being reported, or was
	reported chan struct{} // of a hold: closed when the loss was reported, before the end
}

// measure reports the beginning of an operation to the hook, which is not nil.
func (c *Client) measure(ctx context.Context, op telemetry.Operation) *Measured {
	return &Measured{Context: c.hook.Begin(ctx, op), client: c, op: op, start: c.now()}
}

// MeasureAcquire reports that a caller begins to acquire a lock, or one of its slots. The acquisition continues with the
// context that it returns.
func (c *Client) MeasureAcquire(ctx context.Context, name string, role telemetry.Role, slots int) (context.Context, *Measured) {
	if c.hook == nil {
		return ctx, nil
	}
	m := c.measure(ctx, telemetry.Operation{Kind: telemetry.Acquire, Name: name, Role: role, Slots: slots})
	return m.Context, m
}

// measure reports the beginning of the hold, or of its release.
func (h *Hold) measure(ctx context.Context, kind telemetry.Kind) *Measured {
	if h.client.hook == nil {
		return nil
	}
	m := h.client.measure(ctx, telemetry.Operation{Kind: kind, Name: h.Name(), Token: h.Token(), Role: h.policy.Role, Slots: h.policy.Slots})
	m.reported = make(chan struct{})
	return m
}

// measured returns what measures the hold, or nil. It is the parent of the hold's context, so that a hold
// that is not measured needs no memory for it.
func (h *Hold) measured() *Measured {
	m, _ := h.parent.(*Measured)
	return m
}

// Since makes the operation count from an earlier time. m may be nil.
func (m *Measured) Since(t time.Duration) {
	if m != nil {
		m.start = t
	}
}

func (m *Measured) took() time.Duration { return m.client.now() - m.start }

// End reports the end of the operation.
func (m *Measured) End(err error) {
	if m != nil {
		m.client.hook.End(m.Context, m.op, m.took(), err)
	}
}

// endHold reports the end of a hold. inTime reports whether it was renewed until its release began;
// otherwise cause is the reason for the loss.
func (m *Measured) endHold(inTime bool, cause error) {
	if inTime {
		m.End(nil)
		return
	}
	m.loss(cause) // unless the Renewer has noticed it
	m.End(cause)
}

// loss reports that a hold has ended without a release, once. It returns when that was reported.
func (m *Measured) loss(cause error) {
	switch {
	case m == nil:
	case m.lost.CompareAndSwap(false, true):
		defer close(m.reported)
		m.client.hook.Lost(m.Context, m.op, m.took(), cause)
	default:
		<-m.reported
	}
}

// Renewed reports a renewal, and the time that was left until the loss.
func (h *Hold) Renewed(left time.Duration) {
	if m := h.measured(); m != nil {
		m.client.hook.Renewed(m.Context, m.op, left)
	}
}

// Overran reports that another may be granted the lock although work still runs.
func (h *Hold) Overran() {
	if m := h.measured(); m != nil {
		m.client.hook.Overrun(m.Context, m.op)
	}
}
