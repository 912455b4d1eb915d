// Command holdfast runs a command while it holds a distributed lock, and shows
// who holds which lock.
//
//	holdfast run nightly-report -- ./report.sh
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
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

// Exit codes of the command itself. Those for "the service is unavailable" and
// "try again" are sysexits.h's, the two before 128 the shell's.
const (
	codeUsage       = 2
	codeUnavailable = 69
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
	case errors.Is(err, holdfast.ErrInvalid):
		return codeUsage
	case errors.Is(err, holdfast.ErrHeld):
		return codeHeld
	default:
		return codeUnavailable
	}
}

type cli struct {
	Backend string `short:"b" env:"HOLDFAST_BACKEND" placeholder:"URL" help:"Where the locks are kept (see above). A URL that holds a password belongs into the variable: other users of the machine can read a command line."`
	Quiet   bool   `short:"q" xor:"talk" help:"Say only what goes wrong."`
	Verbose bool   `short:"v" xor:"talk" help:"Say more."`

	Run     runCmd     `cmd:"" help:"Wait for a lock and run a command while holding it."`
	Status  statusCmd  `cmd:"" help:"Show who holds a lock."`
	Ls      lsCmd      `cmd:"" help:"List locks."`
	Bench   benchCmd   `cmd:"" help:"Measure a backend."`
	Version versionCmd `cmd:"" help:"Show the version."`
}

const description = `Locks that many machines agree on, kept in the storage you already run.

The backend is a URL, given with --backend or in HOLDFAST_BACKEND:

  file:/var/lib/holdfast           a folder; for the processes of one machine
  mongodb://h1,h2/app?replicaSet=rs0&collection=locks
                                   MongoDB; also mongodb+srv://
  azblob://ACCOUNT/CONTAINER       Azure Blob Storage; azblob://emulator/locks
                                   is Azurite on this machine

Without one it is a folder of your own on this machine:
  %s

Exit codes:
  2    the command line or the backend's URL is wrong
  69   the backend cannot be reached or refuses
  others: see "holdfast run --help"`

// usages are the first line of each command's help.
var usages = map[string]string{
	"":        "holdfast COMMAND [flags]",
	"run":     "holdfast run [flags] NAME -- COMMAND [ARGUMENT...]",
	"status":  "holdfast status [flags] NAME",
	"ls":      "holdfast ls [flags] [PREFIX]",
	"bench":   "holdfast bench [flags]",
	"version": "holdfast version [flags]",
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

// app is what the commands share.
type app struct {
	flags          *cli
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
	var flags cli
	backend, backendErr := defaultBackend()
	parser, err := kong.New(&flags,
		kong.Name("holdfast"), kong.Description(fmt.Sprintf(description, backend)),
		kong.Writers(stdout, stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppDescFormat: true}),
		kong.Help(printHelp), kong.Groups{"wait": "Waiting:", "hold": "Holding the lock:"})
	if err != nil {
		panic(err) // the declarations above are wrong; every test would see it
	}
	parsed, err := parser.Parse(args)
	say := newReporter(&backlog{w: stderr}, flags.Quiet, flags.Verbose)
	defer say.flush(exitFlushTimeout)
	if err != nil {
		say.error("%s", withoutSecret(err.Error()))
		say.flush(exitFlushTimeout)
		fmt.Fprintln(stderr, `Run "holdfast --help", or "holdfast COMMAND --help", for what is allowed.`)
		return codeUsage
	}
	if flags.Backend == "" {
		if flags.Backend = backend; backendErr != nil && parsed.Command() != "version" {
			say.error("no --backend was given, and there is no folder of your own to use: %v", backendErr)
			return codeUsage
		}
	}
	err = parsed.Run(&app{flags: &flags, stdout: stdout, stderr: stderr, say: say})
	if err == nil {
		return 0
	}
	var exit *exitError
	if !errors.As(err, &exit) || exit.err != nil {
		say.error("%v", err)
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
	return holdfast.Open(ctx, a.flags.Backend, opts...)
}

// shutdownTimeout bounds how long the command stays only to tidy up: what is not
// released by then frees itself when its lease runs out.
const shutdownTimeout = 10 * time.Second

// ask opens the backend, asks something of it, and closes it.
func (a *app) ask(question func(context.Context, *holdfast.Client) error) error {
	ctx := context.Background()
	client, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	err = question(ctx, client)
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	return errors.Join(err, client.Shutdown(ctx))
}
