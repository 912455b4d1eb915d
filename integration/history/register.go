package history

import (
	"fmt"
	"io"
	"time"

	"github.com/anishathalye/porcupine"
)

// registers has porcupine check each fenced register.
func (c *checker) registers(limit time.Duration) {
	for key, ops := range c.h.registers() {
		switch porcupine.CheckOperationsTimeout(fencedRegister, ops, limit) {
		case porcupine.Ok:
		case porcupine.Illegal:
			c.breach(Linearizable, 0, "register %q: no order of its operations explains their results", key)
		case porcupine.Unknown:
			c.breach(Linearizable, 0, "register %q: not decided within %v", key, limit)
		}
	}
}

// registers are the operations on each fenced register that say something about it.
func (h *History) registers() map[string][]porcupine.Operation {
	byKey := map[string][]porcupine.Operation{}
	for _, op := range h.Operations {
		if o, counts := op.porcupine(); counts {
			byKey[op.Key] = append(byKey[op.Key], o)
		}
	}
	return byKey
}

// draw draws a register's operations, in an order that explains their results as far
// as there is one, and beside them the holders, the pauses and the faults.
func (h *History) draw(w io.Writer, ops []porcupine.Operation, limit time.Duration) error {
	_, info := porcupine.CheckOperationsVerbose(fencedRegister, ops, limit)
	info.AddAnnotations(h.annotations())
	return porcupine.Visualize(fencedRegister, info, w)
}

// porcupine is the operation as the checker wants it, unless it says nothing: it had
// no effect for certain, or is a read that nobody has the answer to.
func (op Operation) porcupine() (_ porcupine.Operation, counts bool) {
	if op.Outcome == Failed || op.Op == Read && op.Outcome != OK {
		return porcupine.Operation{}, false
	}
	return porcupine.Operation{
		ClientId: op.Client,
		Input:    input{op.Op, op.Token, op.Value},
		Call:     int64(op.Start),
		Output:   op.Outcome,
		Return:   int64(op.End),
		Metadata: fmt.Sprintf("process %d", op.Process),
	}, true
}

// annotations are what a picture shows besides operations.
func (h *History) annotations() []porcupine.Annotation {
	var list []porcupine.Annotation
	var last time.Duration
	for _, hold := range h.Holds {
		last = max(last, hold.Until)
		list = append(list, porcupine.Annotation{Tag: "holders", Start: int64(hold.From), End: int64(hold.Until), Description: hold.String()})
	}
	for _, p := range h.Pauses {
		list = append(list, porcupine.Annotation{Tag: "pauses", Start: int64(p.Start), End: int64(min(p.Stop, last)),
			Description: fmt.Sprintf("process %d %s", p.Process, p.Note)})
	}
	for _, f := range h.Faults {
		list = append(list, porcupine.Annotation{Tag: "faults", Start: int64(f.At), End: int64(f.Until), Description: f.Note})
	}
	return list
}

// input is what an operation asks for; of a read, what it must have found.
type input struct {
	op    Op
	token uint64
	value int64
}

// content is the state of a fenced register: its value and the token of its writer.
type content struct {
	token uint64
	value int64
}

// fencedRegister is what a fenced register does when nothing happens at once: a write
// is refused if, and only if, its token is lower than the last writer's.
var fencedRegister = porcupine.Model{
	Init: func() any { return content{} },
	Step: func(state, in, out any) (bool, any) {
		now, i := state.(content), in.(input) //nolint:forcetypeassert // porcupine hands back what it was given
		asked := content{i.token, i.value}
		accepts := i.token >= now.token
		switch {
		case i.op == Read:
			return now == asked, now
		case out == OK:
			return accepts, asked
		case out == Refused:
			return !accepts, now
		case accepts: // unknown, and if it has an effect at all, then here
			return true, asked
		default:
			return true, now
		}
	},
	DescribeOperation: func(in, out any) string {
		i := in.(input) //nolint:forcetypeassert // porcupine hands back what it was given
		if i.op == Read {
			return fmt.Sprintf("read %d by %d", i.value, i.token)
		}
		return fmt.Sprintf("write %d by %d: %v", i.value, i.token, out)
	},
	DescribeState: func(state any) string {
		s := state.(content) //nolint:forcetypeassert // porcupine hands back what it was given
		return fmt.Sprintf("%d by %d", s.value, s.token)
	},
}
