// Command holdfast runs a command while it holds a distributed lock, and shows
// who holds which lock.
//
//	holdfast run --backend mongodb://db1,db2/app?replicaSet=rs0 nightly-report -- ./report.sh
//
// Run "holdfast --help" and "holdfast run --help" for everything else.
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
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

// Exit codes of the command itself. Those for "the service is unavailable", "input or
// output error" and "try again" are sysexits.h's, the two before 128 the shell's.
const (
	codeUsage       = 2
	codeUnavailable = 69
	codeOutput      = 74
	codeHeld        = 75
	codeLost        = 76
	codeNotRunnable = 126
	codeNotFound    = 127
	codeSignal      = 128 // plus the signal's number
)

// exitError ends the command with a code, and a message unless err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// codeOf says which exit code an error of the library means.
func codeOf(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, driver.ErrInvalid):
		return codeUsage
	case errors.Is(err, holdfast.ErrHeld):
		return codeHeld
	default:
		return codeUnavailable
	}
}

// notHeldError is an error that is no failure: another holds the lock, for as long as the
// flags allow to wait.
type notHeldError struct{ error }

func (e notHeldError) Unwrap() error { return e.error }

// Variables of the environment.
const (
	envBackend = "HOLDFAST_BACKEND"
	envToken   = "HOLDFAST_TOKEN" //nolint:gosec // no secret
	envName    = "HOLDFAST_NAME"
	envOwner   = "HOLDFAST_OWNER"
	envSlot    = "HOLDFAST_SLOT"
)

type cli struct {
	Backend     string      `short:"b" env:"HOLDFAST_BACKEND" placeholder:"URL" help:"Where the locks are kept (see above). A URL that holds a password belongs into the variable: other users of the machine can read a command line."`
	Quiet       bool        `short:"q" xor:"talk" help:"Report failures only."`
	Verbose     bool        `short:"v" xor:"talk" help:"Report more."`
	ShowVersion versionFlag `name:"version" help:"Show the version."`

	Run     runCmd     `cmd:"" help:"Wait for a lock and run a command while holding it."`
	Status  statusCmd  `cmd:"" help:"Show who holds a lock."`
	Ls      lsCmd      `cmd:"" help:"List locks."`
	Bench   benchCmd   `cmd:"" help:"Measure a backend."`
	Version versionCmd `cmd:"" help:"Show the version."`
	Help    helpCmd    `cmd:"" help:"Show the help of a command."`
}

const description = `Locks that many machines agree on, kept in the storage you already run.

The backend is a URL, given with --backend or in HOLDFAST_BACKEND:

  mongodb://h1,h2/app?replicaSet=rs0&collection=locks
                                   MongoDB; also mongodb+srv://
  azblob://ACCOUNT/CONTAINER       Azure Blob Storage; azblob://emulator/locks
                                   is Azurite on this machine
  file:/var/lib/holdfast           a folder; for the processes of one machine
  file:                            a folder of your own on this machine:
    %s

Without one it is file: on a terminal. Elsewhere, as in a script or under cron,
that is an error: each machine would have a lock of its own.

Exit codes:
  2    the command line or the backend's URL is wrong
  69   the backend cannot be reached or refuses
  74   the output cannot be written
  others: see "holdfast run --help"`

// usages are the first line of each command's help.
var usages = map[string]string{
	"":        "holdfast COMMAND [flags]",
	"run":     "holdfast run [flags] NAME -- COMMAND [ARGUMENT...]",
	"status":  "holdfast status [flags] NAME",
	"ls":      "holdfast ls [flags] [PREFIX]",
	"bench":   "holdfast bench [flags]",
	"version": "holdfast version [flags]",
	"help":    "holdfast help [COMMAND]",
}

func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	command := ""
	if node := ctx.Selected(); node != nil {
		command = node.Name
	}
	fmt.Fprintln(ctx.Stdout, "Usage:", usages[command])
	options.NoAppSummary = true
	return kong.DefaultHelpPrinter(options, ctx)
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Name of the command."`
}

// Run shows what --help shows.
func (h *helpCmd) Run(a *app) error {
	if code := execute(append(h.Command, "--help"), a.stdout, a.stderr); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// app is what the commands share.
type app struct {
	args           []string
	backend        string // its URL
	person         bool   // may be reading the messages
	stdout, stderr io.Writer
	say            *reporter
}

func main() {
	if isGuardian() {
		guard()
		return
	}
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	helpCode, messages := 0, &backlog{w: stderr}
	defer messages.flush(exitFlushTimeout)
	if len(args) == 0 {
		args, stdout, helpCode = []string{"--help"}, messages, codeUsage
	}
	var flags cli
	out := &results{w: stdout}
	folder, err := localFolder()
	if err != nil {
		folder = "(there is none: " + printable(err.Error()) + ")"
	}
	parser, err := kong.New(&flags,
		kong.Name("holdfast"), kong.Description(fmt.Sprintf(description, folder)),
		kong.Writers(out, messages), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true}),
		kong.Exit(func(int) { // after help or version
			if out.err != nil {
				newReporter(messages, false, false).error("%v", out.err)
				helpCode = codeOutput
			}
			messages.flush(exitFlushTimeout)
			os.Exit(helpCode)
		}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(durationOf)),
		kong.TypeMapper(reflect.TypeFor[int](), kong.MapperFunc(numberOf)),
		kong.Help(printHelp), kong.Groups{"wait": "Waiting:", "hold": "Holding the lock:", "command": "The command:"})
	if err != nil {
		panic(err) // the declarations above are wrong; every test would see it
	}
	parsed, err := parser.Parse(args)
	say := newReporter(messages, flags.Quiet, flags.Verbose)
	if out.err != nil { // the help
		say.error("%v", out.err)
		return codeOutput
	}
	if err != nil {
		say.error("%s", withoutSecret(err.Error()))
		fmt.Fprintln(messages, `Run "holdfast --help", or "holdfast COMMAND --help", for what is allowed.`)
		return codeUsage
	}
	a := &app{args: args, stdout: out, stderr: stderr, say: say}
	if file, ok := stderr.(*os.File); ok {
		a.person = isTerminal(file)
	}
	if err := a.choose(flags.Backend, strings.Fields(parsed.Command())[0]); err != nil {
		say.error("%v", err)
		return codeUsage
	}
	return a.exit(parsed.Run(a))
}

// choose decides which backend a command uses.
func (a *app) choose(given, command string) (err error) {
	if command == "version" || command == "help" {
		return nil
	}
	if a.backend, err = chooseBackend(given, a.person); err != nil {
		return err
	}
	if inMemory(a.backend) && command != "bench" {
		return errMemory
	}
	return nil
}

// exit reports a command's error and returns the exit code.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	var exit *exitError
	var other notHeldError
	switch {
	case errors.As(err, &other):
		a.say.info("%v", err)
	case !errors.As(err, &exit) || exit.err != nil:
		a.say.error("%s", inFlags(err))
	}
	return codeOf(err)
}

// exitFlushTimeout bounds how long the command stays only to have its last messages read.
const exitFlushTimeout = 2 * time.Second

// openTimeout bounds connecting to the backend.
const openTimeout = 30 * time.Second

// open makes a client for the chosen backend. Its events go to observe alone.
func (a *app) open(ctx context.Context, observe func(holdfast.Event), opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	opts = append(opts, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	if observe != nil {
		opts = append(opts, holdfast.WithObserver(observe))
	}
	return holdfast.Open(ctx, a.backend, opts...)
}

// tryingAfter is how long a person sees nothing before it is said what takes so long.
const tryingAfter = time.Second

// trying has the backend named that does not answer, unless stop is called in time.
func (a *app) trying() (stop func()) {
	timer := time.AfterFunc(tryingAfter, func() { a.say.info("trying to reach %s", shownBackend(a.backend)) })
	return func() { timer.Stop() }
}

const (
	// shutdownTimeout bounds how long the command stays only to tidy up: what is not
	// released by then frees itself when its lease runs out.
	shutdownTimeout = 10 * time.Second
	// closeTimeout bounds it where no lock was had: all that may be left is a request in
	// doubt. A backend that answers at all does so in this time.
	closeTimeout = 500 * time.Millisecond
)

// ask opens the backend, asks something of it, and closes it.
func (a *app) ask(question func(context.Context, *holdfast.Client) error) error {
	defer a.trying()()
	ctx := context.Background()
	client, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	err = question(ctx, client)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if late := client.Shutdown(ctx); late != nil {
		a.say.detail("%v", late)
	}
	return err
}
