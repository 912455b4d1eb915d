package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
)

// requestTimeout bounds a request to the backend that the user has asked for.
const requestTimeout = 30 * time.Second

// framesPerSecond is how often the screen is drawn at most.
const framesPerSecond = 20

// Run runs a program that fills the terminal, until it ends itself or ctx ends. Afterwards the
// terminal is as it was, even if the program panics.
func Run(ctx context.Context, m tea.Model) error {
	// Not tea.WithContext: if a context ends the program, it closes the terminal's reader while that reads.
	program := tea.NewProgram(m, tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	continued, stop := tty.NotifyContinued()
	defer stop()
	ended := make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(ended)
	watching.Go(func() {
		canceled := ctx.Done()
		for {
			select {
			case <-continued:
				program.Send(continuedMsg{})
			case <-canceled:
				canceled = nil
				program.Quit()
			case <-ended:
				return
			}
		}
	})
	_, err := program.Run()
	switch {
	case errors.Is(err, tea.ErrProgramPanic):
		return exitcode.With(exitcode.Panic, nil) // the panic and its stack are on standard error
	case err != nil && ctx.Err() == nil:
		return exitcode.With(exitcode.Output, fmt.Errorf("the terminal failed: %w", err))
	}
	return nil
}

type (
	// tickMsg makes the screen show that time has passed.
	tickMsg struct{}
	// continuedMsg says that the process was stopped, and has been continued.
	continuedMsg struct{}
	// brokeMsg is the outcome of breaking a lock, for the user.
	brokeMsg string
	// pastMsg is what a lock's record says of its past holders. Listings do not show them.
	pastMsg struct {
		name    string
		token   uint64
		state   driver.State
		holders int
		tenures []driver.Tenure
		err     error
	}
)

// Init is called by the program once.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.nextSnapshot, tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// withoutScreen runs a function, on the program's goroutine, while the program has left the terminal, and then draws the screen
// anew. The program's library can suspend itself, but would hang where no shell can continue it.
func withoutScreen(run func()) tea.Cmd {
	return tea.Exec(terminalTask(run), func(error) tea.Msg { return tea.ClearScreen() })
}

// terminalTask is a [tea.ExecCommand].
type terminalTask func()

// Run runs the task.
func (t terminalTask) Run() error {
	t()
	return nil
}

// SetStdin does nothing.
func (terminalTask) SetStdin(io.Reader) {}

// SetStdout does nothing.
func (terminalTask) SetStdout(io.Writer) {}

// SetStderr does nothing.
func (terminalTask) SetStderr(io.Writer) {}

// nextSnapshot waits for a snapshot that is not shown yet. The program does not wait for it.
func (m *Model) nextSnapshot() tea.Msg {
	s, err := m.source.After(m.ctx, m.awaited)
	if err != nil { // the program ends
		return nil
	}
	return s
}

// readPast reads the past holders of the lock about which all is shown, if that is shown for the first
// time or the lock has changed hands. After a failure the next snapshot leads to another attempt.
func (m *Model) readPast() tea.Cmd {
	if m.mode != inDetail || !m.history || m.reading {
		return nil
	}
	r, _ := m.selected()
	if m.past.name == r.Name && m.past.token == r.Token && m.past.state == r.State && m.past.holders == len(r.Holders) {
		return nil
	}
	m.reading = true
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
		defer cancel()
		read, err := m.client.Inspect(ctx, r.Name)
		return pastMsg{r.Name, read.Token, read.State, len(read.Holders), read.History, err}
	}
}

// breakAsked breaks the holder that the user was asked about.
func (m *Model) breakAsked() tea.Cmd {
	r := m.asked
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
		defer cancel()
		err := m.client.Break(ctx, r.Name, describe.BreakTarget(r))
		var held *holdfast.HeldError
		switch {
		case errors.As(err, &held):
			return brokeMsg(describe.NotBroken(held.Record).Error())
		case err != nil:
			return brokeMsg(fmt.Sprintf("%s was not broken: %s", format.Text(r.Name), messages.Line(err.Error())))
		}
		return brokeMsg(describe.Broke(r, false))
	}
}

// whyNotBreak says why a lock cannot be broken now; it is empty if it can.
func (m *Model) whyNotBreak(r driver.Record) string {
	name := format.Text(r.Name)
	switch {
	case !m.mayBreak:
		return `to break locks, start "holdfast top --allow-break"`
	case m.client.Locker().Capabilities().Breaker == nil:
		return "this backend cannot break locks"
	case r.State == driver.StateFree:
		return name + " is free: there is nothing to break"
	case len(r.Holders) > 1:
		return fmt.Sprintf("%s is shared by %d holders: break one by holdfast break %s", name, len(r.Holders),
			format.NameAndFlags(r.Name, "--token N"))
	case r.Broken:
		return fmt.Sprintf("%s is broken already: it becomes free %s", name, describe.FreeBy(r))
	}
	return ""
}
