package locktest

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// Pool checks from outside that at most n are in at once, each in a slot of its own
// whose tokens rise.
type Pool struct {
	*Exclusive
	n     int
	Slots map[string]bool
}

func NewPool(tb testing.TB, n int) *Pool {
	p := &Pool{Exclusive: NewExclusive(tb), n: n, Slots: map[string]bool{}}
	for i := range n {
		p.Slots[SlotRecord("pool", i)] = true
	}
	return p
}

func SlotRecord(name string, slot int) string {
	if slot == 0 {
		return name
	}
	return fmt.Sprintf("%s#%d", name, slot+1)
}

func (p *Pool) Enter(h *holdfast.Hold) {
	p.Exclusive.Enter(h.Context(), h.Name(), h.Token())
	if !p.Slots[h.Name()] || h.Name() != SlotRecord("pool", h.Slot()) {
		p.tb.Errorf("%q is not slot %d of %d", h.Name(), h.Slot(), p.n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	live := 0
	for _, ctx := range p.last {
		if ctx.Err() == nil {
			live++
		}
	}
	if live > p.n {
		p.tb.Errorf("%d live holders of %d slots", live, p.n)
	}
}
