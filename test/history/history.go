package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Never is the end of an operation with an unknown outcome, and of a pause that lasted to the
// end.
const Never time.Duration = math.MaxInt64

// History is what all processes of a run did and what happened to them. Each list is sorted by
// time.
type History struct {
	Holds      []Hold
	Operations []Operation
	Sets       []Line // of the counter
	Pauses     []Span
	Skews      []Span
	Exits      []Line
	Faults     []Line
	Grants     []Line
	Waits      []Wait
}

// Wait is the time in which a waiter was in the queue of its process.
type Wait struct {
	Client, Process int
	Asked, Until    time.Duration // Until is when its hold began, or when it gave up
}

// Hold is one period in which a client held the lock.
type Hold struct {
	Client, Process int
	Token           uint64
	// Shared: it is that of a reader, which excludes writers alone.
	Shared bool
	// Asked is when the client began to wait.
	Asked time.Duration
	// The hold's context was live at From, at Until and at all times between. It may have been
	// live after Until.
	From, Until time.Duration
	// Hold.Err was nil from From up to ErrNil. ErrNil is before From if Hold.Err was never nil.
	ErrNil time.Duration
}

// String names the hold in a report.
func (h Hold) String() string {
	return fmt.Sprintf("client %d (process %d, token %d)", h.Client, h.Process, h.Token)
}

// Operation is one operation of a client on a fenced register.
type Operation struct {
	Client, Process int
	Op              Op
	Key             string
	Token           uint64
	Value           int64
	Start, End      time.Duration
	Outcome         Outcome
}

// stall is the note of a pause that was not injected.
const stall = "stall"

// Span is a period that concerns one process, or all processes if Process is 0.
type Span struct {
	Process     int
	Start, Stop time.Duration
	Note        string
}

// intersects reports whether the span and the closed interval share a moment, for the process.
func (s Span) intersects(process int, from, until time.Duration) bool {
	return (s.Process == 0 || s.Process == process) && s.Start <= until && s.Stop >= from
}

// Load reads the history files of a folder.
func Load(dir string) (*History, error) {
	lines, err := LoadLines(dir)
	if err != nil {
		return nil, err
	}
	return Merge(lines)
}

// LoadLines reads the lines of all history files of a folder, sorted by time.
func LoadLines(dir string) ([]Line, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+Suffix))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("history: no file *%s in %s: %w", Suffix, dir, fs.ErrNotExist)
	}
	var lines []Line
	for _, path := range paths {
		if lines, err = appendFile(lines, path); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	return lines, nil
}

func appendFile(lines []Line, path string) ([]Line, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	more, err := parseLines(b)
	if err != nil {
		return nil, fmt.Errorf("history: %s, %w", path, err)
	}
	return append(lines, more...), nil
}

// parseLines parses the content of a file. It ignores text after the last line break: a killed
// process did not finish that line. Lines may be long: one has the stacks of leaked goroutines.
func parseLines(content []byte) ([]Line, error) {
	var lines []Line
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	for text := range bytes.Lines(content) {
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// WriteLines writes lines as [Load] reads them.
func WriteLines(w io.Writer, lines []Line) error {
	enc := json.NewEncoder(w)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// Suffix is the suffix of history files.
const Suffix = ".jsonl"

// Merge builds a history from lines, which may come in any order.
func Merge(lines []Line) (*History, error) {
	m := merger{asks: map[key]Line{}, quits: map[key]Line{}, holds: map[key]*Hold{}, calls: map[key]*Operation{}, returned: map[key]bool{},
		pauses: map[int]Span{}, skews: map[int]Span{}}
	if byTime := func(a, b Line) int { return cmp.Compare(a.At, b.At) }; !slices.IsSortedFunc(lines, byTime) {
		lines = slices.Clone(lines)
		slices.SortStableFunc(lines, byTime)
	}
	for _, l := range lines {
		if err := m.add(l); err != nil {
			return nil, fmt.Errorf("history: %w: %+v", err, l)
		}
	}
	return m.history(), nil
}

// key identifies a hold or an operation.
type key struct {
	process int
	id      uint64
}

type merger struct {
	h             History
	asks, quits   map[key]Line
	holds         map[key]*Hold
	calls         map[key]*Operation
	returned      map[key]bool
	pauses, skews map[int]Span // spans without an end so far, by process
}

func (m *merger) add(l Line) error {
	k := key{l.Process, l.ID}
	switch l.Kind {
	case Ask:
		m.asks[k] = l
	case Quit:
		m.quits[k] = l
	case Live:
		m.addLive(k, l)
	case Call:
		if m.calls[k] != nil {
			return errors.New("two operations have the same ID")
		}
		m.calls[k] = &Operation{Client: l.Client, Process: l.Process, Op: l.Op, Key: l.Key, Token: l.Token, Value: l.Value,
			Start: l.At, End: Never, Outcome: Unknown}
	case Return:
		return m.addReturn(k, l)
	case Set:
		m.h.Sets = append(m.h.Sets, l)
	case Pause:
		beginSpan(m.pauses, l)
	case Resume:
		m.h.Pauses = endSpan(m.pauses, l, m.h.Pauses)
	case Stall:
		m.h.Pauses = append(m.h.Pauses, Span{Process: l.Process, Start: l.At, Stop: l.Until, Note: stall})
	case Skew:
		beginSpan(m.skews, l)
	case Unskew:
		m.h.Skews = endSpan(m.skews, l, m.h.Skews)
	case Exit:
		m.h.Exits = append(m.h.Exits, l)
	case Grant:
		m.h.Grants = append(m.h.Grants, l)
	case Fault:
		m.h.Faults = append(m.h.Faults, l)
	default:
		return errors.New("unknown kind of line")
	}
	return nil
}

func (m *merger) addLive(k key, l Line) {
	h := m.holds[k]
	if h == nil {
		h = &Hold{Client: l.Client, Process: l.Process, Token: l.Token, Shared: l.Shared, Asked: l.At, From: l.At}
		if ask, ok := m.asks[k]; ok {
			h.Asked = ask.At
		}
		m.holds[k] = h
	}
	h.Until, h.ErrNil = max(h.Until, l.At), max(h.ErrNil, l.ErrNil)
}

func (m *merger) addReturn(k key, l Line) error {
	op := m.calls[k]
	switch {
	case op == nil:
		return errors.New("an operation returned that was never called")
	case m.returned[k]:
		return errors.New("an operation returned twice")
	}
	m.returned[k] = true
	op.Outcome = l.Outcome
	if l.Outcome != Unknown {
		op.End = l.At
	}
	if op.Op == Read {
		op.Token, op.Value = l.Token, l.Value
	}
	return nil
}

// beginSpan and endSpan add the two ends of a span.
func beginSpan(open map[int]Span, l Line) {
	if _, already := open[l.Process]; !already {
		open[l.Process] = Span{Process: l.Process, Start: l.At, Stop: Never, Note: l.Note}
	}
}

func endSpan(open map[int]Span, l Line, spans []Span) []Span {
	s, ok := open[l.Process]
	if !ok {
		return spans
	}
	delete(open, l.Process)
	s.Stop = l.At
	return append(spans, s)
}

func (m *merger) history() *History {
	h := &m.h
	for _, s := range m.pauses {
		h.Pauses = append(h.Pauses, s)
	}
	for _, s := range m.skews {
		h.Skews = append(h.Skews, s)
	}
	for _, hold := range m.holds {
		h.Holds = append(h.Holds, *hold)
	}
	for _, op := range m.calls {
		h.Operations = append(h.Operations, *op)
	}
	for k, ask := range m.asks {
		if !ask.Queued {
			continue
		}
		w := Wait{Client: ask.Client, Process: ask.Process, Asked: ask.At, Until: Never}
		if quit, ok := m.quits[k]; ok {
			w.Until = quit.At
		}
		if hold := m.holds[k]; hold != nil {
			w.Until = min(w.Until, hold.From)
		}
		h.Waits = append(h.Waits, w)
	}
	slices.SortFunc(h.Waits, func(a, b Wait) int { return cmp.Or(cmp.Compare(a.Asked, b.Asked), cmp.Compare(a.Until, b.Until)) })
	slices.SortFunc(h.Holds, func(a, b Hold) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Token, b.Token)) })
	slices.SortFunc(h.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Process, b.Process))
	})
	for _, spans := range [][]Span{h.Pauses, h.Skews} {
		slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	}
	return h
}
