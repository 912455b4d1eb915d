package main

import (
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"
)

// screen is a console whose output is drawn as a terminal draws it.
type screen struct {
	*console
	terminal  *vt.Emulator  // guarded by the console's mu
	alternate bool          // the screen of a program that fills the terminal is shown
	hidden    bool          // the cursor is
	answered  chan struct{} // closed when the program has got the answer to its last question
}

// openScreen opens a terminal of a size for a command, with further environment variables.
func openScreen(t *testing.T, width, height int, env []string, command string, args ...string) *screen {
	t.Helper()
	s := &screen{terminal: vt.NewEmulator(width, height), answered: make(chan struct{})}
	s.terminal.SetCallbacks(vt.Callbacks{
		AltScreen:        func(on bool) { s.alternate = on },
		CursorVisibility: func(visible bool) { s.hidden = !visible },
	})
	s.console = startConsole(t, func(c *console, cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=", "NO_COLOR=", "COLORTERM=")
		cmd.Env = append(cmd.Env, env...)
		c.copy = s.terminal
		s.console = c
		s.setSize(width, height)
	}, command, args...)
	var answers sync.WaitGroup
	answers.Go(s.answer)
	t.Cleanup(func() {
		_ = s.terminal.InputPipe().(io.Closer).Close()
		answers.Wait()
		if t.Failed() {
			t.Logf("the screen at the end:\n%s", s.text())
		}
	})
	return s
}

// answer passes on what a terminal answers to the program's questions. The last one is about mode
// 2027. If the program ended before it has got the answer, the shell would get it.
func (s *screen) answer() {
	buffer, all := make([]byte, 256), ""
	for {
		n, err := s.terminal.Read(buffer)
		if err != nil {
			return
		}
		_, _ = s.pty.Write(buffer[:n]) // fails if the test ends; the emulator must not wait
		had := strings.Contains(all, "[?2027;")
		if all += string(buffer[:n]); !had && strings.Contains(all, "[?2027;") {
			close(s.answered)
		}
	}
}

// awaitAnswered waits until the program has got its answers.
func (s *screen) awaitAnswered() {
	s.t.Helper()
	select {
	case <-s.answered:
	case <-time.After(patience):
		s.t.Fatal("the program did not ask the terminal")
	}
}

func (s *screen) setSize(width, height int) {
	s.t.Helper()
	raw, err := s.pty.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)})
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// resize changes the size of the terminal's window.
func (s *screen) resize(width, height int) {
	s.t.Helper()
	s.mu.Lock()
	s.terminal.Resize(width, height)
	s.mu.Unlock()
	s.setSize(width, height) // sends SIGWINCH
}

// lines are the lines on the screen.
func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := make([]string, s.terminal.Height())
	for y := range lines {
		var line strings.Builder
		for x := 0; x < s.terminal.Width(); x++ {
			if cell := s.terminal.CellAt(x, y); cell != nil && cell.Width > 0 {
				line.WriteString(cell.Content)
			}
		}
		lines[y] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

func (s *screen) text() string { return strings.Join(s.lines(), "\n") }

// until waits until what is on the screen fulfils a condition.
func (s *screen) until(what string, holds func(lines []string) bool) {
	s.t.Helper()
	if !s.within(patience, holds) {
		s.t.Fatalf("the screen never showed %s", what)
	}
}

// within waits until what is on the screen fulfils a condition, but no longer than limit.
func (s *screen) within(limit time.Duration, holds func(lines []string) bool) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if holds(s.lines()) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// showsWithin waits until a text is on the screen, but no longer than limit.
func (s *screen) showsWithin(limit time.Duration, text string) bool {
	return s.within(limit, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) })
}

// shows waits until all texts are on the screen.
func (s *screen) shows(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		s.until(text, func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), text) })
	}
}

// rowsAre waits until the table has the rows of these locks, in this order.
func (s *screen) rowsAre(names ...string) {
	s.t.Helper()
	s.until("the rows "+strings.Join(names, ", "), func(lines []string) bool {
		var rows []string
		inTable := false
		for _, line := range lines {
			fields := strings.Fields(strings.TrimPrefix(line, ">"))
			switch {
			case len(fields) > 1 && strings.HasPrefix(fields[0], "NAME"):
				inTable = true
			case inTable && len(fields) == 0:
				inTable = false
			case inTable && (strings.HasPrefix(line, "> ") || strings.HasPrefix(line, "  ")):
				rows = append(rows, fields[0])
			}
		}
		return strings.Join(rows, " ") == strings.Join(names, " ")
	})
}

// colored reports whether any cell on the screen has a colour.
func (s *screen) colored() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for y := 0; y < s.terminal.Height(); y++ {
		for x := 0; x < s.terminal.Width(); x++ {
			if cell := s.terminal.CellAt(x, y); cell != nil && (cell.Style.Fg != nil || cell.Style.Bg != nil) {
				return true
			}
		}
	}
	return false
}

// usual reports whether the terminal is as a program finds it: the usual screen, a visible cursor.
func (s *screen) usual() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.alternate && !s.hidden
}
