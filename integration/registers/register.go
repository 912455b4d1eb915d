// Package registers checks histories of fenced registers for linearizability, with porcupine, an
// independent checker, and stores failing histories with pictures.
package registers

import (
	"fmt"
	"io"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/test/history"
)

// Check checks a history against all rules of package history, and each fenced register for
// linearizability. That may take up to limit for each register; no result by then is a violation,
// too. An operation whose outcome is unknown may take effect at any time after its start, or never.
func Check(h *history.History, limit time.Duration) *history.Report {
	return history.Check(h, func(h *history.History) []history.Violation { return checkRegisters(h, limit) })
}

func checkRegisters(h *history.History, limit time.Duration) (violations []history.Violation) {
	for key, ops := range operations(h) {
		var text string
		switch porcupine.CheckOperationsTimeout(fencedRegister, ops, limit) {
		case porcupine.Ok:
			continue
		case porcupine.Illegal:
			text = fmt.Sprintf("register %q: no order of its operations explains their results", key)
		case porcupine.Unknown:
			text = fmt.Sprintf("register %q: no result within %v", key, limit)
		}
		violations = append(violations, history.Violation{Rule: history.Linearizable, Text: text})
	}
	return violations
}

// operations returns the operations on each fenced register that the checker needs.
func operations(h *history.History) map[string][]porcupine.Operation {
	byKey := map[string][]porcupine.Operation{}
	for _, op := range h.Operations {
		if o, counts := convert(op); counts {
			byKey[op.Key] = append(byKey[op.Key], o)
		}
	}
	return byKey
}

// draw draws the operations on a register in the order that explains their results, as far as
// there is one, with the holders, pauses and faults.
func draw(h *history.History, w io.Writer, ops []porcupine.Operation, limit time.Duration) error {
	_, info := porcupine.CheckOperationsVerbose(fencedRegister, ops, limit)
	info.AddAnnotations(annotations(h))
	return porcupine.Visualize(fencedRegister, info, w)
}

// convert converts an operation for the checker. It returns false if the operation says nothing
// about the register: it had no effect for certain, or it is a read without an answer.
func convert(op history.Operation) (_ porcupine.Operation, counts bool) {
	if op.Outcome == history.Failed || op.Op == history.Read && op.Outcome != history.OK {
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

// annotations returns the holders, pauses and faults for a picture.
func annotations(h *history.History) []porcupine.Annotation {
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

// input is what an operation requests; of a read, what it found.
type input struct {
	op    history.Op
	token uint64
	value int64
}

// registerState is the state of a fenced register: its value and the token of its writer.
type registerState struct {
	token uint64
	value int64
}

// fencedRegister is the sequential behavior of a fenced register: a write is refused if, and only
// if, its token is lower than that of the last write.
var fencedRegister = porcupine.Model{
	Init: func() any { return registerState{} },
	Step: func(state, in, out any) (bool, any) {
		current, i := state.(registerState), in.(input) //nolint:forcetypeassert // porcupine returns the values that it was given
		requested := registerState{i.token, i.value}
		accepts := i.token >= current.token
		switch {
		case i.op == history.Read:
			return current == requested, current
		case out == history.OK:
			return accepts, requested
		case out == history.Refused:
			return !accepts, current
		case accepts: // the outcome is unknown; if the write took effect, then at this point
			return true, requested
		default:
			return true, current
		}
	},
	DescribeOperation: func(in, out any) string {
		i := in.(input) //nolint:forcetypeassert // porcupine returns the values that it was given
		if i.op == history.Read {
			return fmt.Sprintf("read %d, token %d", i.value, i.token)
		}
		return fmt.Sprintf("write %d, token %d: %v", i.value, i.token, out)
	},
	DescribeState: func(state any) string {
		s := state.(registerState) //nolint:forcetypeassert // porcupine returns the values that it was given
		return fmt.Sprintf("%d, token %d", s.value, s.token)
	},
}
