// Command setup installs what the tests need and is missing: system packages, with the system's
// package manager, and a MongoDB server, PostgreSQL and Azurite, in the folder .cache. "make test" runs it
// first. Without the right to install packages it prints the commands that install them.
//
// "setup docs" installs what building the site of the pages needs instead; "make docs" runs it.
// "setup browser" installs a browser and fetches axe-core, for "make -f tools/tools.mk test-page".
// "setup model" installs what checking the model of the protocol needs; "make -f tools/tools.mk spec-small" runs it.
// "setup deploy" installs Prometheus; "make -f tools/tools.mk test-deploy" runs it.
//
// With HOLDFAST_SETUP=list it prints these commands and does not run them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// EnvMode names the variable that, set to "list", prevents the installation of packages.
const EnvMode = "HOLDFAST_SETUP"

// interruptGrace is how long an interrupted package manager has to end. If it were killed, it could
// leave packages half configured.
const interruptGrace = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends setup at once
	s, servers, optional := realSystem(ctx), []server{mongod, postgres, redis, azurite}, optionalNeeds
	if len(os.Args) == 2 {
		servers, optional = nil, nil
		switch os.Args[1] {
		case "docs":
			s.needs = docsNeeds
		case "model":
			s.needs = modelNeeds
		case "deploy":
			s.needs = deployNeeds
		case "browser":
			s.needs, servers = browserNeeds, []server{axe}
		}
	}
	if slices.ContainsFunc(servers, func(s server) bool { return s.env != "" && !s.isProvided() && !s.available() }) {
		fmt.Fprint(os.Stderr, firstRun)
	}
	err := run(ctx, s, os.Stderr)
	if err == nil && len(optional) > 0 {
		tryOptional(ctx, s, optional, os.Stderr)
	}
	if err == nil {
		err = fetch(ctx, os.Stderr, servers...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1) //nolint:gocritic // the process ends without stop
	}
}

// run installs the missing system packages. If it may not, its error says how to install them.
func run(ctx context.Context, s system, log io.Writer) error {
	missing := s.missing()
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintln(log, "These are missing on this machine:")
	for _, n := range missing {
		fmt.Fprintf(log, "  %s: %s\n", n.name, n.reason)
	}
	m := s.manager()
	if m == nil || s.listOnly || !s.canInstall(m) {
		return &adviceError{missing}
	}
	// What no package provides needs the user: that is said before anything is installed for nothing.
	if own := slices.DeleteFunc(slices.Clone(missing), func(n need) bool { return n.packages[m.name] != "" }); len(own) > 0 {
		return &adviceError{own}
	}
	packages, begin := m.packages(missing), time.Now()
	if len(packages) > 0 {
		fmt.Fprintf(log, "Installing them takes a minute or two and downloads about %d MB; the output goes into %s.\n"+
			"To list the commands instead, interrupt this and set %s=list.\n", megabytes(missing), s.logFile, EnvMode)
	}
	for _, command := range m.commands(packages) {
		command = s.asRoot(m, command)
		fmt.Fprintln(log, "+", strings.Join(command, " "))
		if err := s.run(ctx, command); err != nil {
			return fmt.Errorf("%s: %w; its output is in %s", strings.Join(command, " "), err, s.logFile)
		}
	}
	if missing = s.missing(); len(missing) > 0 {
		return &adviceError{missing}
	}
	fmt.Fprintf(log, "installed %s in %v\n", strings.Join(packages, " "), time.Since(begin).Round(time.Second))
	return nil
}

// tryOptional installs what few tests need. If it may not or cannot, it says so.
func tryOptional(ctx context.Context, s system, optional []need, log io.Writer) {
	s.needs = optional
	if err := run(ctx, s, log); err != nil {
		fmt.Fprintln(log, "The tests that need this are skipped:", err)
	}
}

// megabytes is about what the packages of all needs download.
func megabytes(missing []need) (sum int) {
	for _, n := range missing {
		sum += max(n.megabytes, 1)
	}
	return sum
}

// adviceError says what is missing and how to install it.
type adviceError struct{ missing []need }

func (e *adviceError) Error() string {
	var b strings.Builder
	b.WriteString("provide what is missing, then start again; for packages there are these commands:")
	for i := range managers {
		m := &managers[i]
		commands := m.commands(m.packages(e.missing))
		if len(commands) > 0 {
			b.WriteString("\n")
		}
		for _, command := range commands {
			if m.needsRoot {
				command = append([]string{"sudo"}, command...)
			}
			fmt.Fprintf(&b, "\n    %s", strings.Join(command, " "))
		}
	}
	for _, n := range e.missing {
		if n.alternative != "" {
			fmt.Fprintf(&b, "\n\n%s: %s", n.name, n.alternative)
		}
	}
	return b.String()
}

// server is a server that the tests use, or a script.
type server struct {
	name      string
	env       string      // the variable with the address of a server of the user; can be empty
	available func() bool // without fetching it
	fetch     func(context.Context) (path string, err error)
}

var (
	mongod   = server{"mongod", testservers.EnvMongoURI, testservers.Mongod.IsInstalled, testservers.Mongod.Path}
	postgres = server{"PostgreSQL", testservers.EnvPostgresURL, testservers.PostgresBin.IsInstalled, testservers.PostgresBin.Path}
	redis    = server{"Redis", testservers.EnvRedisURL, testservers.Redis.IsInstalled, testservers.Redis.Path}
	azurite  = server{"Azurite", testservers.EnvAzblobURL, testservers.AzuriteIsCached, testservers.Azurite}
	axe      = server{"axe-core", "", testservers.AxeIsCached, testservers.Axe}
)

// firstRun announces what a run on a new machine costs. docs/development.md has the parts.
const firstRun = "The first run on this machine downloads up to 390 MB once and needs about 3 GB of disk, most of it for what Go " +
	"compiles.\n" +
	"With two busy processors the downloads take three minutes, and compiling with the race detector takes two before the first test.\n"

// isProvided reports whether the user provides a running server. Tests that stop servers start their own
// all the same, and fetch the program themselves: a run without such tests does not need it.
func (s server) isProvided() bool { return s.env != "" && os.Getenv(s.env) != "" }

// fetch fetches the servers that the user does not provide.
func fetch(ctx context.Context, log io.Writer, servers ...server) error {
	for _, s := range servers {
		switch {
		case !s.isProvided():
			if _, err := s.fetch(ctx); err != nil {
				return err
			}
		case !s.available():
			fmt.Fprintf(log, "%s is set, so setup does not fetch %s; tests that stop servers still need it\n", s.env, s.name)
		}
	}
	return nil
}

// logFile has the output of the package manager, which can have thousands of lines.
var logFile = filepath.Join(".cache", "setup.log")

func openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return nil, err
	}
	return os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// hasTerminal reports whether this machine can make a pseudo-terminal. Only the tests on Linux make one.
func hasTerminal() bool {
	if runtime.GOOS != "linux" {
		return true
	}
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	others, err := filepath.Glob("/dev/pts/[0-9]*") // the other ends, f's among them
	return err == nil && len(others) > 0
}

// realSystem is the machine on which this program runs.
func realSystem(ctx context.Context) system {
	return system{
		listOnly: os.Getenv(EnvMode) == "list",
		root:     os.Getuid() == 0,
		has:      func(program string) bool { _, err := exec.LookPath(program); return err == nil },
		works: func(stdin, name string, args ...string) bool {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, name, args...)
			c.Stdin = strings.NewReader(stdin)
			return c.Run() == nil
		},
		output: func(name string, args ...string) string {
			out, err := exec.CommandContext(ctx, name, args...).Output()
			if err != nil {
				return ""
			}
			return string(out)
		},
		logFile:  logFile,
		terminal: hasTerminal,
		run: func(ctx context.Context, command []string) error {
			output, err := openLog()
			if err != nil {
				return err
			}
			defer func() { _ = output.Close() }()
			c := exec.CommandContext(ctx, command[0], command[1:]...)
			c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			c.Stdout, c.Stderr = output, output
			c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
			c.WaitDelay = interruptGrace
			return c.Run()
		},
	}
}
