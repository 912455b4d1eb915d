package table

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
)

// keysText explains the keys.
const keysText = `Keys

  up, down, j, k      select a lock (home, end, pgup, pgdn, space too)
  enter               show all about the selected lock
  /                   filter by a part of the name or of the owner
  tab                 show only held, broken, free, unknown locks; all
  esc                 show all locks again
  n  s  o             sort by name, state, owner
  l  w  r             sort by time left, waiters, last renewal
                      (the same key again: the other way round)
  b                   break the lock (with --allow-break), after a question
  ctrl+l              draw the screen anew
  ctrl+z              suspend
  q, ctrl+c           quit

Columns

  LEFT    how long the lease lasts unless it is renewed, and as a bar
  HELD    how long the lock has been held
  WAIT    how many waiters queue for the lock
  ?       not known`

// detail is all about the selected lock.
func (m *Model) detail() string {
	r, _ := m.selected()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", format.Text(r.Name), describe.State(r))
	var held []describe.Fact
	if r.State == driver.StateHeld && !r.AcquiredAt.IsZero() && len(r.Holders) == 0 {
		held = append(held, describe.Fact{Name: "held for", Value: cellDuration(m.heldFor(r))})
	}
	r.RemainingKnown = m.leftKnown(r)
	if m.past.name == r.Name {
		r.History = m.past.tenures
	}
	for _, f := range append(describe.Facts(r), held...) {
		value := f.Value
		if f.Name == "time left" {
			value = pad(value, len("59.9s of 1h30m"), false) + "  " + m.bar(r)
		}
		fmt.Fprintf(&b, "  %-11s %s\n", f.Name, value)
	}
	if before := describe.Before(r); len(before) > 0 {
		b.WriteString("\nBefore\n\n  " + strings.Join(before, "\n  ") + "\n")
	}
	return b.String()
}

// question asks whether to break a lock.
func (m *Model) question() string {
	return fmt.Sprintf("Break %s?\n\nIt is held by %s.\n\n%s",
		format.Text(m.asked.Name), describe.Holder(m.asked), describe.BreakEffect(m.asked, false))
}

// text draws a part of a text that fits the screen. Long lines are wrapped.
func (m *Model) text(text string, height int) []string {
	if height < 1 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(ansi.Wrap(text, m.width, ""), "\n"), "\n")
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "") // an indent that is wider than the window
	}
	lines[0] = m.style.title.Render(lines[0])
	m.scroll = max(0, min(m.scroll, len(lines)-height))
	return lines[m.scroll:min(m.scroll+height, len(lines))]
}

// foot is the last line: a message, the filter while it is typed, a question, or the keys.
func (m *Model) foot() string {
	switch {
	case m.mode == inBreak:
		return m.style.alarm.Render(m.cut("Break it?  y: yes   any other key: no", m.width))
	case m.mode == inFilter:
		return ansi.TruncateLeft(m.filterPrompt(), max(0, ansi.StringWidth(m.filterPrompt())-m.width+1), "")
	case m.message != "":
		return m.style.title.Render(m.cut(m.message, m.width))
	}
	keys := []string{"q back", "up/down scroll", "b break", "? keys"}
	switch {
	case m.mode == inTable:
		keys = []string{"q quit", "? keys", "enter detail", "/ filter", "nsolwr sort", "tab state", "b break"}
		if !m.mayBreak {
			keys = keys[:len(keys)-1]
		}
	case m.mode == inKeys:
		keys = keys[:2]
	case !m.mayBreak:
		keys = []string{keys[0], keys[1], keys[3]}
	}
	line := ""
	for _, key := range keys { // those for which there is room
		if next := line + key + "   "; ansi.StringWidth(next)-3 <= m.width {
			line = next
		}
	}
	return m.style.faint.Render(strings.TrimRight(line, " "))
}

func (m *Model) filterPrompt() string { return "filter: " + m.selection.Text }
