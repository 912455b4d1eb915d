// Command holdfast runs a command while it holds a distributed lock, and shows which locks
// are held by whom.
//
//	holdfast run --backend mongodb://db1,db2/app?replicaSet=rs0 nightly-report -- ./report.sh
//
// Run "holdfast --help" and "holdfast run --help" for the details.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/completion"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/manual"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"
	_ "github.com/holdfast-go/holdfast/internal/alldrivers"
)

// Environment variables.
const (
	envBackend = backends.Variable
	envToken   = "HOLDFAST_TOKEN" //nolint:gosec // not a credential
	envName    = "HOLDFAST_NAME"
	envTokens  = "HOLDFAST_TOKENS"
	envOwner   = "HOLDFAST_OWNER"
	envSlot    = "HOLDFAST_SLOT"
)

type cli struct {
	Backend     string      `short:"b" env:"HOLDFAST_BACKEND" placeholder:"URL" help:"Where the locks are kept (see \"holdfast --help\"). Default: the environment variable ${env}. Use the variable for a URL with a password: other users of the machine can read a command line."`
	Quiet       bool        `short:"q" xor:"verbosity" help:"Report only failures."`
	Verbose     bool        `short:"v" xor:"verbosity" help:"Report more details."`
	ShowVersion versionFlag `name:"version" help:"Show the version."`

	Run        runCmd        `cmd:"" usage:"[flags] NAME -- COMMAND [ARGUMENT...]" help:"Wait for a lock and run a command while holding it."`
	Status     statusCmd     `cmd:"" usage:"[flags] NAME" help:"Show who holds a lock."`
	Ls         lsCmd         `cmd:"" usage:"[flags] [PREFIX]" help:"List locks."`
	Watch      watchCmd      `cmd:"" usage:"[flags] [NAME...]" help:"Show each change of locks."`
	Explain    explainCmd    `cmd:"" usage:"[flags] NAME" help:"Explain who holds a lock, who had it before, and what would free it."`
	Top        topCmd        `cmd:"" usage:"[flags]" help:"Show the locks in a table in the terminal, live."`
	Elect      electCmd      `cmd:"" usage:"[flags] NAME" help:"Take part in an election and show who leads."`
	Lock       lockCmd       `cmd:"" usage:"[flags] NAME" help:"Hold a lock until standard input ends."`
	Data       dataCmd       `cmd:"" usage:"get|set [flags] NAME" help:"Read or replace the data stored with a lock."`
	Break      breakCmd      `cmd:"" usage:"[flags] NAME" help:"Take a lock from its holder."`
	Serve      serveCmd      `cmd:"" usage:"[flags]" help:"Serve a page that shows the locks, live."`
	Doctor     doctorCmd     `cmd:"" usage:"[flags]" help:"Examine whether a backend is set up right."`
	Certify    certifyCmd    `cmd:"" usage:"[flags]" help:"Check on a backend that locks keep their promises there."`
	Bench      benchCmd      `cmd:"" usage:"[flags]" help:"Measure a backend."`
	Completion completionCmd `cmd:"" usage:"bash|zsh|fish" help:"Print the completion script of a shell."`
	Man        manCmd        `cmd:"" usage:"FOLDER" hidden:"" help:"Write the manual pages into a folder."`
	Version    versionCmd    `cmd:"" usage:"[flags]" help:"Show the version."`
	Help       helpCmd       `cmd:"" usage:"[COMMAND]" help:"Show the help of a command."`
}

// description is the help of the command without arguments. folder is the user's own on this machine.
func description(folder string) string {
	return `Distributed locks for the command line, kept in storage that you already run.

Set the backend, where the locks are kept, with --backend URL or in the
environment variable HOLDFAST_BACKEND:

` + backends.Examples() + `  file:                        a folder of your own on this machine:
    ` + folder + `

At a terminal the default is file:. Elsewhere, as in a script or under cron, a
backend must be set: otherwise each machine would use locks of its own.

Exit codes:
  2    the command line or the backend's URL is wrong
  69   the backend cannot be reached, or it reports an error. What waits or
       runs on tries for 10s after its start; after the backend's first
       answer it tries on
  74   the output cannot be written
  more exit codes: "holdfast run --help", "holdfast doctor --help"`
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Name of the command."`
}

// Run shows the same text as --help.
func (h *helpCmd) Run(a *app) error {
	if code := execute(append(h.Command, "--help"), a.stdout, a.stderr); code != 0 {
		return exitcode.With(code, nil)
	}
	return nil
}

// app is what the commands share.
type app struct {
	args           []string
	backend        string // URL
	backendFlag    string // the URL of --backend, or "" if the environment or the default sets the backend
	interactive    bool   // standard error is a terminal
	stdout, stderr io.Writer
	log            *messages.Log
}

func main() {
	if child.IsGuardian() {
		child.RunGuardian(releaseLeases)
		return
	}
	stopReaping := child.ReapOrphans() // in a container nobody else may do it
	code := execute(os.Args[1:], os.Stdout, os.Stderr)
	stopReaping()
	os.Exit(code)
}

// execute runs the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	helpCode, queue := 0, messages.NewWriter(stderr)
	defer queue.Flush(exitFlushTimeout)
	if len(args) == 0 {
		args, stdout, helpCode = []string{"--help"}, queue, exitcode.Usage
	}
	var flags cli
	out := &stdoutWriter{w: stdout}
	if args[0] == completion.Arg {
		completionsOf(args[1:], namesOf).Write(out)
		return 0
	}
	parser := newParser(&flags, out, queue, func() { // after --help and --version
		if out.err != nil {
			messages.NewLog(queue, false, false).Errorf("%v", out.err)
			helpCode = exitcode.Output
		}
		queue.Flush(exitFlushTimeout)
		os.Exit(helpCode)
	})
	parsed, err := parser.Parse(args)
	log := messages.NewLog(queue, flags.Quiet, flags.Verbose)
	slog.SetDefault(slog.New(log.Handler())) // for the drivers

	if out.err != nil { // from writing the help
		log.Errorf("%v", out.err)
		return exitcode.Output
	}
	if err != nil {
		log.Errorf("%s", backends.Redact(err.Error()))
		fmt.Fprintln(queue, `Run "holdfast --help" or "holdfast COMMAND --help" for usage.`)
		return exitcode.Usage
	}
	a := &app{args: args, stdout: out, stderr: stderr, log: log}
	if file, ok := stderr.(*os.File); ok {
		a.interactive = tty.IsTerminal(file)
	}
	if err := a.setBackend(flags.Backend, strings.Fields(parsed.Command())[0]); err != nil {
		log.Errorf("%v", err)
		return exitcode.Usage
	}
	return a.report(parsed.Run(a))
}

// newParser makes the parser of command lines. It calls exit after it has shown the help or
// the version.
func newParser(flags *cli, stdout, stderr io.Writer, exit func()) *kong.Kong {
	folder, err := backends.LocalFolder()
	if err != nil {
		folder = "(not available: " + format.Text(err.Error()) + ")"
	}
	parser, err := kong.New(flags,
		kong.Name("holdfast"), kong.Description(description(folder)),
		kong.Writers(stdout, stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true}),
		kong.Exit(func(int) { exit() }),
		kong.KindMapper(reflect.String, kong.MapperFunc(parseString)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[int](), kong.MapperFunc(parseNumber)),
		kong.PostBuild(func(k *kong.Kong) error {
			k.Model.HelpFlag.Help = "Show this help."
			return nil
		}),
		kong.Help(manual.Print), kong.Groups{"wait": "Waiting for the lock:", "hold": "Holding the lock:", "listen": "Metrics and probes:",
			"command": "Running the command:"})
	if err != nil {
		panic(err) // the declarations above are wrong; every test would fail
	}
	return parser
}

// setBackend sets the backend that a command uses.
func (a *app) setBackend(given, command string) (err error) {
	switch command {
	case "version", "help", "completion", "man":
		return nil
	}
	if given != os.Getenv(envBackend) {
		a.backendFlag = given
	} else if trimmed := strings.TrimSpace(given); trimmed != given {
		a.log.Infof("white space at the ends of %s is left out", envBackend)
		given = trimmed
	}
	if a.backend, err = backends.Choose(given, a.interactive, os.Getenv(envToken) != ""); err != nil {
		return err
	}
	if backends.IsMemory(a.backend) && command != "bench" {
		return backends.ErrMemory(a.backend)
	}
	return nil
}

// report logs a command's error and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	var exit *exitcode.Error
	var conflict exitcode.ConflictError
	switch {
	case errors.As(err, &conflict):
		a.log.Infof("%v", err)
	case !errors.As(err, &exit) || exit.Err != nil:
		a.log.Errorf("%s", withFlagNames(err))
	}
	return exitcode.Of(err)
}

// exitFlushTimeout bounds how long the exit waits for the last messages to be written.
const exitFlushTimeout = 2 * time.Second

const (
	// openTimeout bounds connecting to the backend.
	openTimeout = 30 * time.Second
	// missingTimeout bounds the question whether there is a store for the locks.
	missingTimeout = 5 * time.Second
)

// discardLog keeps the library from logging: the command reports what matters itself.
var discardLog = holdfast.WithLogger(slog.New(slog.DiscardHandler))

// open makes a client for the backend. Only events, which may be nil, receives its events.
func (a *app) open(ctx context.Context, events *eventLogger, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	locker, err := driver.Open(ctx, a.backend)
	if err != nil {
		return nil, err
	}
	if events != nil {
		locker = driver.Intercept(locker, events.around)
		opts = append(opts, holdfast.WithObserver(events.observe))
	}
	return newClient(ctx, locker, opts)
}

// newClient makes a client, or closes its Locker.
func newClient(ctx context.Context, locker driver.Locker, opts []holdfast.ClientOption) (*holdfast.Client, error) {
	client, err := holdfast.New(locker, append(opts, discardLog)...)
	if err != nil {
		return nil, errors.Join(err, locker.Close(ctx))
	}
	return client, nil
}

// slowAnswer is how long the backend may take to answer before a message says that
// holdfast waits for it.
const slowAnswer = time.Second

// reportSlowAnswer logs that the backend is slow to answer, unless stop is called in time.
func (a *app) reportSlowAnswer() (stop func()) {
	timer := time.AfterFunc(slowAnswer, func() { a.log.Infof("trying to reach %s", backends.Display(a.backend)) })
	return func() { timer.Stop() }
}

const (
	// shutdownTimeout bounds the end, what a signal has interrupted, release and cleanup together. A lock that is not released by then
	// becomes free when its lease expires. The manifests in deploy/ count on it.
	shutdownTimeout = 10 * time.Second
	// hangTimeout is how long a call may take to notice that its time is over.
	hangTimeout = 100 * time.Millisecond
	// idleShutdownTimeout bounds it if no lock was acquired. Then only an in-doubt request
	// may need a cleanup, for which a backend that answers at all needs less time.
	idleShutdownTimeout = 500 * time.Millisecond
	// callTimeout is how long after a signal a call of the backend may still take; the rest of shutdownTimeout is for the
	// shutdown.
	callTimeout = shutdownTimeout - idleShutdownTimeout
)

// withClient opens the backend, calls fn and closes the backend.
func (a *app) withClient(open opener, fn func(context.Context, *holdfast.Client) error) error {
	defer a.reportSlowAnswer()()
	ctx := context.Background()
	client, err := open(ctx)
	if err != nil {
		return err
	}
	err = fn(ctx, client)
	ctx, cancel := context.WithTimeout(ctx, idleShutdownTimeout)
	defer cancel()
	if err := client.Shutdown(ctx); err != nil {
		a.log.Verbosef("%v", err)
	}
	return err
}
