// Package table shows locks in a terminal, live: the table of "holdfast top".
package table

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// mode is what the screen shows, and what the keys mean.
type mode int

const (
	inTable  mode = iota
	inFilter      // the table, while the filter is typed
	inDetail      // one lock
	inKeys        // the keys
	inBreak       // the question whether to break a lock
)

// Model is the state of the table. Only its program uses it, one call at a time.
type Model struct {
	ctx      context.Context
	client   *holdfast.Client
	source   *lockview.Source
	backend  string
	prefix   string
	mayBreak bool
	missing  string // part of the backend, as missingStore returned it at the start
	queues   bool   // the backend has queues of waiters
	history  bool   // the backend keeps past holders
	style    style

	width, height int
	snapshot      *lockview.Snapshot // nil before the first one
	awaited       int                // the number of the snapshot
	selection     lockview.Selection
	rows          []*driver.Record // of the snapshot, selected and sorted
	counts        map[string]int
	widest        widths // of the rows

	mode        mode
	back        mode    // the mode to return to
	cursor, top int     // rows: the selected one, and the first on the screen
	name        string  // of the selected row, so that it stays selected when the rows move
	scroll      int     // the first line of a text on the screen
	typedBefore string  // the filter before it was typed anew
	past        pastMsg // of the lock about which all is shown
	reading     bool    // a request for past is under way
	asked       driver.Record
	message     string // for the user, until the next key
	interrupted bool
	resumed     int // notices to come that the process was continued, after which the screen is drawn already
}

// Options say what the table shows, and what its user may do.
type Options struct {
	Backend  string // for the heading
	Prefix   string // of the names of the locks that the source lists
	MayBreak bool   // the user may break locks
	Missing  string // the part of the backend that does not exist, so that there are no locks; or ""
}

// New makes a table. It reads from the source until ctx ends.
func New(ctx context.Context, client *holdfast.Client, source *lockview.Source, o Options) *Model {
	return &Model{ctx: ctx, client: client, source: source, backend: o.Backend, prefix: o.Prefix, mayBreak: o.MayBreak, missing: o.Missing,
		queues: client.Capabilities().Queue != nil, history: client.Info().History > 0,
		style:     newStyle(),
		selection: lockview.Selection{Sort: "name"}}
}

// Interrupted reports whether the user has ended the table by Ctrl-C.
func (m *Model) Interrupted() bool { return m.interrupted }

// Update is called by the program for each message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case *lockview.Snapshot:
		m.snapshot, m.awaited = msg, msg.Number
		m.counts = msg.Count()
		m.refresh()
		return m, tea.Batch(m.nextSnapshot, m.readPast())
	case tickMsg:
		return m, tick()
	case continuedMsg:
		if m.resumed > 0 {
			m.resumed--
			return m, nil
		}
		return m, withoutScreen(func() {}) // the shell has used the terminal
	case pastMsg:
		m.reading = false
		if msg.err == nil {
			m.past = msg
		}
		if msg.name != m.name { // the user has gone on to another lock
			return m, m.readPast()
		}
	case brokeMsg:
		m.message = string(msg)
	case tea.PasteMsg:
		if m.mode == inFilter {
			m.typeFilter(m.selection.Text + printable(msg.Content))
		}
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// refresh selects and sorts the rows anew. The selected lock stays selected.
func (m *Model) refresh() {
	if m.snapshot == nil {
		return
	}
	m.rows = m.snapshot.Select(m.selection)
	m.widest = widestOf(m.rows)
	if at := slices.IndexFunc(m.rows, func(r *driver.Record) bool { return r.Name == m.name }); at >= 0 {
		m.cursor = at
	}
	m.move(0)
}

// move moves the cursor, within the rows.
func (m *Model) move(by int) {
	m.cursor = max(0, min(m.cursor+by, len(m.rows)-1))
	if m.cursor < len(m.rows) {
		m.name = m.rows[m.cursor].Name
	}
}

// selected returns the selected lock, with the time left as it is now.
func (m *Model) selected() (driver.Record, bool) {
	if m.mode == inDetail {
		if r := m.snapshot.Record(m.name); r != nil {
			return m.now(r), true
		}
		return driver.Record{Name: m.name, State: driver.StateFree}, true // its record was removed
	}
	if m.cursor >= len(m.rows) {
		return driver.Record{}, false
	}
	return m.now(m.rows[m.cursor]), true
}

// now returns a record with the time left as it is now. While the backend does not answer it stays
// as it was read.
func (m *Model) now(r *driver.Record) driver.Record {
	if m.disconnected() {
		return *r
	}
	return lockview.Now(r, m.snapshot.At)
}

// disconnected reports whether the backend does not answer.
func (m *Model) disconnected() bool {
	return m.snapshot != nil && (m.snapshot.Err != nil || time.Now().After(m.snapshot.Overdue))
}

// key handles a key.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	m.message = ""
	switch key := msg.String(); {
	case key == "ctrl+c":
		m.interrupted = true
		return tea.Quit
	case key == "ctrl+z":
		return withoutScreen(func() {
			if tty.SuspendGroup() {
				m.resumed++ // the program's own notice follows
			}
		})
	case key == "ctrl+l":
		return tea.ClearScreen
	case m.mode == inFilter:
		m.keyInFilter(key, msg.Text)
	case m.mode == inBreak:
		m.mode = m.back
		if key == "y" || key == "Y" {
			m.message = "breaking " + format.Text(m.asked.Name) + " ..."
			return m.breakAsked()
		}
		m.message = format.Text(m.asked.Name) + " was not broken"
	case m.mode == inTable:
		return m.keyInTable(key)
	default:
		m.keyInText(key)
	}
	return nil
}

// sorts are the orders by their keys. The first is the direction that the key begins with.
var sorts = map[string]lockview.Selection{
	"n": {Sort: "name"}, "s": {Sort: "state"}, "o": {Sort: "owner"}, "l": {Sort: "left"},
	"w": {Sort: "waiters", Desc: true}, "r": {Sort: "renewed", Desc: true},
}

func (m *Model) keyInTable(key string) tea.Cmd {
	if order, ok := sorts[key]; ok {
		if m.selection.Sort == order.Sort {
			order.Desc = !m.selection.Desc
		}
		m.selection.Sort, m.selection.Desc = order.Sort, order.Desc
		m.refresh()
		return nil
	}
	page := max(1, m.pageRows()-1)
	switch key {
	case "q":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+u", "ctrl+b":
		m.move(-page)
	case "pgdown", "ctrl+d", "ctrl+f", "space":
		m.move(page)
	case "home", "g":
		m.move(-len(m.rows))
	case "end", "G":
		m.move(len(m.rows))
	case "/":
		m.mode, m.typedBefore = inFilter, m.selection.Text
	case "tab":
		at := slices.Index(lockview.States, m.selection.State) + 1 // -1 + 1 for all states
		m.selection.State = append(lockview.States, "")[at]
		m.refresh()
	case "esc":
		m.selection.Text, m.selection.State = "", ""
		m.refresh()
	case "enter":
		if _, ok := m.selected(); ok {
			m.openText(inDetail)
			return m.readPast()
		}
	case "b":
		m.askToBreak()
	case "?", "h", "f1":
		m.openText(inKeys)
	}
	return nil
}

// openText shows a text in place of the table.
func (m *Model) openText(mode mode) {
	m.back, m.mode, m.scroll = m.mode, mode, 0
}

// keyInText handles a key while a text is shown.
func (m *Model) keyInText(key string) {
	page := max(1, m.height-2)
	switch key {
	case "q", "esc", "enter", "backspace", "left":
		if m.mode == inDetail {
			m.back = inTable
		}
		m.mode = m.back
	case "up", "k":
		m.scroll--
	case "down", "j":
		m.scroll++
	case "pgup", "ctrl+u", "ctrl+b":
		m.scroll -= page
	case "pgdown", "ctrl+d", "ctrl+f", "space":
		m.scroll += page
	case "home", "g":
		m.scroll = 0
	case "?", "h", "f1":
		if m.mode == inKeys {
			m.mode = m.back
		} else {
			m.openText(inKeys)
		}
	case "b":
		if m.mode == inDetail {
			m.askToBreak()
		}
	}
	m.scroll = max(0, m.scroll) // textLines bounds it above
}

func (m *Model) askToBreak() {
	r, ok := m.selected()
	if !ok {
		return
	}
	if m.message = m.whyNotBreak(r); m.message == "" {
		m.asked = lockview.Latest(r)
		m.openText(inBreak)
	}
}

func (m *Model) keyInFilter(key, text string) {
	typed := m.selection.Text
	switch key {
	case "enter", "down", "up":
		m.mode = inTable
		return
	case "esc":
		m.mode, typed = inTable, m.typedBefore
	case "backspace", "ctrl+h":
		if runes := []rune(typed); len(runes) > 0 {
			typed = string(runes[:len(runes)-1])
		}
	case "ctrl+u":
		typed = ""
	case "ctrl+w":
		typed = typed[:strings.LastIndexAny(strings.TrimRight(typed, " "), " ")+1]
	default:
		typed += printable(text)
	}
	m.typeFilter(typed)
}

func (m *Model) typeFilter(text string) {
	m.selection.Text = text
	m.refresh()
}

// printable removes what cannot be typed into one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}
