package history

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is a fenced register that turned out not to be one.
type register struct {
	key  string
	info porcupine.LinearizationInfo
}

// registers has porcupine check each fenced register.
func (c *checker) registers(limit time.Duration) {
	byKey := map[string][]porcupine.Operation{}
	var keys []string
	for _, op := range c.h.Operations {
		o, counts := op.porcupine()
		if !counts {
			continue
		}
		if byKey[op.Key] == nil {
			keys = append(keys, op.Key)
		}
		byKey[op.Key] = append(byKey[op.Key], o)
	}
	slices.Sort(keys)
	for _, key := range keys {
		verdict := porcupine.CheckOperationsTimeout(fencedRegister, byKey[key], limit)
		if verdict == porcupine.Ok {
			continue
		}
		text := "no order of its operations explains their results"
		if verdict == porcupine.Unknown {
			text = fmt.Sprintf("not decided within %v", limit)
		}
		c.breach(Linearizable, 0, "register %q: %s", key, text)
		_, info := porcupine.CheckOperationsVerbose(fencedRegister, byKey[key], limit)
		info.AddAnnotations(c.annotations())
		c.r.registers = append(c.r.registers, register{key, info})
	}
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

// annotations are the holds, the pauses and the faults, for the picture.
func (c *checker) annotations() []porcupine.Annotation {
	var list []porcupine.Annotation
	for _, h := range c.h.Holds {
		list = append(list, porcupine.Annotation{Tag: "holder", Start: int64(h.From), End: int64(h.Until),
			Description: fmt.Sprintf("client %d, token %d", h.Client, h.Token)})
	}
	for _, p := range c.h.Pauses {
		list = append(list, porcupine.Annotation{Tag: "pauses", Start: int64(p.Start), End: int64(min(p.Stop, c.last())),
			Description: fmt.Sprintf("process %d %s", p.Process, p.Note)})
	}
	for _, f := range c.h.Faults {
		list = append(list, porcupine.Annotation{Tag: "faults", Start: int64(f.At), Description: f.Note})
	}
	return list
}

func (c *checker) last() time.Duration {
	var last time.Duration
	for _, h := range c.h.Holds {
		last = max(last, h.Until)
	}
	return last
}

func (r register) draw(w io.Writer) error { return porcupine.Visualize(fencedRegister, r.info, w) }

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
