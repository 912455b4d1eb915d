package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/table"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
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

var errDumb = exitcode.With(exitcode.Usage, errors.New(`TERM=dumb says that this terminal cannot show a table: `+
	`"holdfast watch" writes a line for each change, and "holdfast ls" lists the locks once`))

// Run shows the table until the user or a signal ends it.
func (c *topCmd) Run(a *app) error {
	switch {
	case !tty.IsTerminal(os.Stdout):
		return errNoScreen
	case os.Getenv("TERM") == "dumb":
		return errDumb
	}
	open := a.openToLook
	if c.AllowBreak {
		open = a.openToTake
	}
	return a.follow(open, func(ctx context.Context, client *holdfast.Client) error {
		if client.Locker().Capabilities().Lister == nil {
			return errCannotList
		}
		missing, err := a.firstAnswer(ctx, client)
		if err != nil {
			return err
		}
		source := lockview.NewSource(client, c.Prefix, c.Every)
		defer source.Close()
		defer source.Enter()()
		slog.SetDefault(slog.New(slog.DiscardHandler)) // a line of a driver would be written over the table, which shows failures itself
		a.log.Flush()
		m := table.New(ctx, client, source, table.Options{Backend: backends.Display(a.backend), Prefix: c.Prefix, MayBreak: c.AllowBreak,
			Missing: missing})
		if err := table.Run(ctx, m); err != nil {
			return err
		}
		if m.Interrupted() {
			return exitcode.With(signals.Code(syscall.SIGINT), nil)
		}
		return nil
	})
}
