package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// View is called by the program when the screen may have to change. Only the rows on the screen are
// drawn.
func (m *Model) View() tea.View {
	var v tea.View
	v.AltScreen = true
	if m.width < 1 || m.height < 1 {
		return v
	}
	lines := m.head()
	body := m.height - len(lines) - m.footHeight()
	switch m.mode {
	case inTable, inFilter:
		lines = append(lines, m.table(body)...)
	case inDetail:
		lines = append(lines, m.text(m.detail(), body)...)
	case inKeys:
		lines = append(lines, m.text(keysText, body)...)
	case inBreak:
		lines = append(lines, m.text(m.question(), body)...)
	}
	for len(lines) < m.height-m.footHeight() {
		lines = append(lines, "")
	}
	if m.footHeight() > 0 {
		lines = append(lines, m.foot())
	}
	if m.mode == inFilter {
		v.Cursor = tea.NewCursor(min(ansi.StringWidth(m.filterPrompt()), m.width-1), m.height-1)
	}
	v.Content = strings.Join(lines[:m.height], "\n")
	if m.style.ascii {
		v.Content = toASCII(v.Content)
	}
	return v
}

// headHeight and footHeight leave most of a low screen to the table.
func (m *Model) headHeight() int { return max(0, min(2, m.height-4)) }

func (m *Model) footHeight() int {
	if m.height < 3 && m.mode != inFilter && m.mode != inBreak {
		return 0
	}
	return 1
}

// pageRows is how many rows of the table are on the screen.
func (m *Model) pageRows() int { return max(0, m.height-m.headHeight()-m.footHeight()-1) }

// head is what stands above everything: the backend and the time, and the state of things.
func (m *Model) head() []string {
	clock := time.Now().Format("15:04:05")
	title := m.spread("holdfast top  "+format.Text(m.backend), clock)
	state := m.summary()
	style := lipgloss.NewStyle()
	if m.disconnected() {
		state, style = m.cut(m.failure(), m.width), m.style.alarm
	}
	all := []string{m.style.title.Render(title), style.Render(state)}
	if m.headHeight() == 1 {
		return all[1:]
	}
	if m.headHeight() == 0 && m.disconnected() && m.height > 1 {
		return all[1:] // more important than a row
	}
	return all[:m.headHeight()]
}

// failure says that the backend does not answer.
func (m *Model) failure() string {
	const problem = "NO ANSWER"
	if m.snapshot.At.IsZero() || m.snapshot.Number == 0 {
		return problem
	}
	text := fmt.Sprintf("%s for %s", problem, cellDuration(time.Since(m.snapshot.At)))
	if len(m.snapshot.Records) > 0 {
		text += ", the rows are from " + m.snapshot.At.Format("15:04:05")
	}
	if m.snapshot.Err != nil {
		text += ": " + messages.Line(m.snapshot.Err.Error())
	}
	return text
}

// summary counts the locks, and says how the table is sorted and filtered.
func (m *Model) summary() string {
	if m.snapshot == nil {
		return m.cut("reading the locks", m.width)
	}
	text := plural(len(m.snapshot.Records), "lock")
	if m.prefix != "" {
		text += " " + format.Text(m.prefix) + "*"
	}
	separator := ": "
	for _, state := range lockview.States {
		if n := m.counts[state]; n > 0 {
			text += fmt.Sprintf("%s%d %s", separator, n, state)
			separator = ", "
		}
	}
	if n := len(m.snapshot.Unreadable); n > 0 {
		text += fmt.Sprintf("; %d cannot be read", n)
	}
	var shown []string
	if m.selection.State != "" {
		shown = append(shown, "only "+m.selection.State)
	}
	if m.selection.Text != "" && m.mode != inFilter {
		shown = append(shown, "filter "+strconv.Quote(m.selection.Text))
	}
	if len(shown) == 0 {
		return m.cut(text, m.width)
	}
	only := strings.Join(append([]string{fmt.Sprintf("%d shown", len(m.rows))}, shown...), ", ")
	if ansi.StringWidth(text)+gap+ansi.StringWidth(only) > m.width {
		return m.cut(only, m.width) // a reader must not take some rows for all
	}
	return m.spread(text, only)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// spread puts one text at the left and one at the right, if there is room for both.
func (m *Model) spread(left, right string) string {
	room := m.width - ansi.StringWidth(right) - 2
	if right == "" || room < min(ansi.StringWidth(left), m.width/2) {
		return m.cut(left, m.width)
	}
	return pad(m.cut(left, room), room, false) + "  " + right
}

// cut shortens a text to a width.
func (m *Model) cut(text string, width int) string {
	return ansi.Truncate(text, max(0, width), m.style.more)
}

// pad fills a text up to a width.
func pad(text string, width int, right bool) string {
	fill := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if right {
		return fill + text
	}
	return text + fill
}

// column is a column of the table.
type column struct {
	title, sort string
	width       int
	right       bool // aligned
	grows       bool // if there is room
	text        func(driver.Record) string
}

// widths are how wide the texts of some columns are.
type widths struct{ name, owner, token int }

// widestOf bounds how wide the texts of the rows are. Texts that are not ASCII take less.
func widestOf(rows []*driver.Record) (w widths) {
	const formerly = len("was ")
	for _, r := range rows {
		w.name, w.owner, w.token = max(w.name, len(r.Name)), max(w.owner, len(describe.Owner(*r))+formerly), max(w.token, len(describe.Token(*r)))
	}
	return w
}

const (
	gap      = 2
	barCells = 10
	// leastName is how much of a name is worth more than the end of its state.
	leastName = 6
	barTitle  = "UNTIL" // shown only if the bar is
)

// columns returns the columns for which there is room. The least important ones are dropped first.
func (m *Model) columns() []column {
	all := []column{
		{title: "NAME", sort: "name", width: max(m.widest.name, 5), grows: true,
			text: func(r driver.Record) string { return format.Text(r.Name) }},
		{title: "STATE", sort: "state", width: 7, text: func(r driver.Record) string { return lockview.State(&r) }},
		{title: "LEFT", sort: "left", width: 6, right: true, text: m.leftCell},
		{title: barTitle, width: barCells, text: m.bar},
		{title: "HELD", width: 7, right: true, text: m.heldCell},
		{title: "WAIT", sort: "waiters", width: 5, right: true, text: waitCell},
		{title: "TOKEN", width: max(m.widest.token, 5), right: true, text: tokenCell},
		{title: "OWNER", sort: "owner", width: max(m.widest.owner, 6), grows: true, text: ownerCell},
	}
	drop := func(title string) {
		all = slices.DeleteFunc(all, func(c column) bool { return c.title == title })
	}
	if !m.queues {
		drop("WAIT")
	}
	room := m.width - gap // the mark of the selected row stands before all
	width := func(most int) int {
		sum := -gap
		for _, c := range all {
			if c.grows {
				c.width = min(c.width, most)
			}
			sum += c.width + gap
		}
		return sum
	}
	for _, next := range []struct {
		title string
		most  int // that a name and an owner take as long as this column is there
	}{{barTitle, 40}, {"TOKEN", 24}, {"HELD", 20}, {"WAIT", 16}, {"OWNER", 12}, {"LEFT", 10}} {
		if width(next.most) <= room {
			break
		}
		drop(next.title)
	}
	if room < width(0)+leastName {
		all[1].width = len("held") // of the state, which the first letters tell
	}
	spare := max(0, room-width(0))
	if owner := &all[len(all)-1]; owner.title == "OWNER" {
		owner.width = min(owner.width, max(spare*2/5, spare-all[0].width))
		spare -= owner.width
	}
	all[0].width = max(1, min(all[0].width, spare))
	return all
}

// table draws the heading and the rows on the screen.
func (m *Model) table(height int) []string {
	if height < 1 {
		return nil
	}
	columns := m.columns()
	var heading strings.Builder
	for i, c := range columns {
		title := c.title
		if title == barTitle {
			title = ""
		}
		if c.sort != "" && c.sort == m.selection.Sort {
			title += m.style.up
			if m.selection.Desc {
				title = c.title + m.style.down
			}
		}
		heading.WriteString(pad(m.cut(title, c.width), c.width, c.right))
		if i < len(columns)-1 {
			heading.WriteString(strings.Repeat(" ", gap))
		}
	}
	lines := []string{m.cut("  "+m.style.heading.Render(pad(m.cut(heading.String(), m.width-gap), m.width-gap, false)), m.width)}
	height--
	if m.snapshot != nil && len(m.rows) == 0 {
		return append(lines, m.nothing()...)[:min(height, 2)+1]
	}
	m.top = max(0, min(m.top, m.cursor, len(m.rows)-height))
	m.top = max(m.top, m.cursor-height+1)
	for i := m.top; i < min(m.top+height, len(m.rows)); i++ {
		lines = append(lines, m.row(columns, m.now(m.rows[i]), i == m.cursor))
	}
	return lines
}

// nothing says why there is no row.
func (m *Model) nothing() []string {
	if len(m.snapshot.Records) > 0 {
		return []string{m.cut("  No lock matches.", m.width), m.cut("  esc shows all locks.", m.width)}
	}
	if m.disconnected() {
		return []string{"", ""}
	}
	if m.missing != "" {
		return []string{m.cut("  There are no locks here yet: "+m.missing+" does not exist.", m.width), ""}
	}
	return []string{m.cut("  There are no locks.", m.width), ""}
}

func (m *Model) row(columns []column, r driver.Record, selected bool) string {
	var line strings.Builder
	if selected {
		line.WriteString("> ")
	} else {
		line.WriteString("  ")
	}
	for i, c := range columns {
		cell := pad(m.cut(c.text(r), c.width), c.width, c.right)
		if style, ok := m.style.states[strings.TrimSpace(cell)]; ok && c.sort == "state" && !selected {
			cell = style.Render(cell)
		}
		line.WriteString(cell)
		if i < len(columns)-1 {
			line.WriteString(strings.Repeat(" ", gap))
		}
	}
	switch text := m.cut(line.String(), m.width); {
	case selected:
		return m.style.selected.Render(pad(text, m.width, false))
	case r.State == driver.StateFree:
		return m.style.faint.Render(text)
	default:
		return text
	}
}

func (m *Model) leftCell(r driver.Record) string {
	switch {
	case r.State == driver.StateFree:
		return "-"
	case r.Endless:
		return "never"
	case !m.leftKnown(r):
		return "?"
	}
	return cellDuration(r.Remaining)
}

// leftKnown reports whether the time left is known. While the backend does not answer it is not: the
// holder may have renewed or released.
func (m *Model) leftKnown(r driver.Record) bool { return r.RemainingKnown && !m.disconnected() }

// bar shows the time left as a part of the TTL.
func (m *Model) bar(r driver.Record) string {
	if r.State != driver.StateHeld || !m.leftKnown(r) || r.TTL <= 0 {
		return ""
	}
	n := max(0, min(barCells, int((r.Remaining*barCells+r.TTL/2)/r.TTL)))
	return strings.Repeat(m.style.full, n) + strings.Repeat(m.style.empty, barCells-n)
}

// heldCell is how long the lock has been held.
func (m *Model) heldCell(r driver.Record) string {
	if r.State != driver.StateHeld {
		return "-"
	}
	if r.AcquiredAt.IsZero() {
		return "?"
	}
	return cellDuration(m.heldFor(r))
}

// heldFor counts by the backend's clock, if that is known.
func (m *Model) heldFor(r driver.Record) time.Duration {
	read := m.snapshot.At
	if !r.ReadAt.IsZero() {
		read = r.ReadAt
	}
	held := read.Sub(r.AcquiredAt)
	if !m.disconnected() {
		held += time.Since(m.snapshot.At)
	}
	return max(0, held)
}

func waitCell(r driver.Record) string {
	if r.Waiters == 0 {
		return "-"
	}
	return strconv.Itoa(r.Waiters)
}

func tokenCell(r driver.Record) string {
	if r.Token == 0 {
		return "?"
	}
	return describe.Token(r)
}

func ownerCell(r driver.Record) string {
	switch {
	case r.Owner == "" && len(r.Holders) == 0:
		return "-"
	case r.State == driver.StateFree:
		return "was " + format.Text(r.Owner)
	}
	return describe.Owner(r)
}

// cellDuration formats a duration in at most six characters: 9.8s, 42s, 12m30s, 3h20m, 12d4h.
func cellDuration(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s < 100*24*3600:
		return fmt.Sprintf("%dd%dh", s/(24*3600), s/3600%24)
	case s < 10000*24*3600:
		return fmt.Sprintf("%dd", s/(24*3600))
	}
	return ">27y"
}
