package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

type topCmd struct {
	Prefix     string        `placeholder:"TEXT" help:"Show only locks whose names begin with this."`
	Every      time.Duration `default:"2s" placeholder:"DURATION" help:"How often to list the locks. Default: 2s. On Azure each listing costs money: 5s is a good value there."`
	AllowBreak bool          `help:"Let the key b break the selected lock, after a confirmation. The holder's renewals are refused, and the lock becomes free when its lease ends."`
}

// Help is shown above the flags.
func (*topCmd) Help() string {
	return `Shows all locks in the terminal, live: who holds them, the time left, who waits. The key ? shows the keys: the table can be
sorted and filtered, and enter shows all about one lock. It is read-only unless --allow-break is given.

The colours follow NO_COLOR and TERM. In a script use "holdfast watch" or "holdfast ls --json".`
}

// Validate is called by the parser.
func (c *topCmd) Validate() error { return checkEvery(c.Every) }

var errNoScreen = exitcode.With(exitcode.Usage,
	errors.New(`standard output is not a terminal: "holdfast watch" writes a line for each change, `+
		`and "holdfast ls --json" lists the locks once`))

// Run shows the table until the user or a signal ends it.
func (c *topCmd) Run(a *app) error {
	if !tty.IsTerminal(os.Stdout) {
		return errNoScreen
	}
	open := a.openToLook
	if c.AllowBreak {
		open = a.openToTake
	}
	return a.follow(open, func(ctx context.Context, client *holdfast.Client) error {
		if client.Locker().Capabilities().Lister == nil {
			return errCannotList
		}
		source := lockview.NewSource(client, c.Prefix, c.Every)
		defer source.Close()
		defer source.Enter()()
		a.log.Flush()
		m := newTopModel(ctx, client, source)
		m.backend, m.prefix, m.mayBreak, m.missing = displayBackend(a.backend), c.Prefix, c.AllowBreak, a.missingStore(ctx, client)
		return runTop(ctx, m)
	})
}

// framesPerSecond is how often the screen is drawn at most.
const framesPerSecond = 20

// runTop runs the table.
func runTop(ctx context.Context, m *topModel) error {
	if err := runScreen(ctx, m); err != nil {
		return err
	}
	if m.interrupted {
		return exitcode.With(signals.Code(syscall.SIGINT), nil)
	}
	return nil
}

// runScreen runs a program that fills the terminal, until it ends itself or ctx ends. Afterwards the
// terminal is as it was, even if the program panics.
func runScreen(ctx context.Context, m tea.Model) error {
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
				program.Send(topContinued{})
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
	// topTick makes the screen show that time has passed.
	topTick struct{}
	// topContinued says that the process was stopped, and has been continued.
	topContinued struct{}
	// topBroke is the outcome of breaking a lock, for the user.
	topBroke string
	// topPast is what a lock's record says of its past holders. Listings do not show them.
	topPast struct {
		name    string
		token   uint64
		state   driver.State
		holders int
		tenures []driver.Tenure
		err     error
	}
)

// Init is called by the program once.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.nextSnapshot, tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return topTick{} }) }

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
func (m *topModel) nextSnapshot() tea.Msg {
	s, err := m.source.After(m.ctx, m.awaited)
	if err != nil { // the program ends
		return nil
	}
	return s
}

// readPast reads the past holders of the lock about which all is shown, if that is shown for the first
// time or the lock has changed hands. After a failure the next snapshot leads to another attempt.
func (m *topModel) readPast() tea.Cmd {
	if m.mode != topDetail || !m.history || m.reading {
		return nil
	}
	r, _ := m.selected()
	if m.past.name == r.Name && m.past.token == r.Token && m.past.state == r.State && m.past.holders == len(r.Holders) {
		return nil
	}
	m.reading = true
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, openTimeout)
		defer cancel()
		read, err := m.client.Inspect(ctx, r.Name)
		return topPast{r.Name, read.Token, read.State, len(read.Holders), read.History, err}
	}
}

// breakAsked breaks the holder that the user was asked about.
func (m *topModel) breakAsked() tea.Cmd {
	r := m.asked
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, openTimeout)
		defer cancel()
		err := m.client.Break(ctx, r.Name, describe.BreakTarget(r))
		var held *holdfast.HeldError
		switch {
		case errors.As(err, &held):
			return topBroke(describe.NotBroken(held.Record).Error())
		case err != nil:
			return topBroke(fmt.Sprintf("%s was not broken: %s", format.Text(r.Name), messages.Line(err.Error())))
		}
		return topBroke(describe.Broke(r, false))
	}
}

// whyNotBreak says why a lock cannot be broken now; it is empty if it can.
func (m *topModel) whyNotBreak(r driver.Record) string {
	name := format.Text(r.Name)
	switch {
	case !m.mayBreak:
		return `to break locks, start "holdfast top --allow-break"`
	case m.client.Locker().Capabilities().Breaker == nil:
		return "this backend cannot break locks"
	case r.State == driver.StateFree:
		return name + " is free: there is nothing to break"
	case len(r.Holders) > 1:
		return fmt.Sprintf("%s is shared by %d holders: break one by holdfast break %s --token N", name, len(r.Holders), format.ShellWord(r.Name))
	case r.Broken:
		return fmt.Sprintf("%s is broken already: it becomes free in %s at the latest", name, describe.Left(r))
	}
	return ""
}
