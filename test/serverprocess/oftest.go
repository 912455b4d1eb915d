package serverprocess

import (
	"flag"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Owned returns a server that has just been started for this test alone, and removes it at the end. An error ends the test.
func Owned[S interface{ Remove() error }](tb testing.TB, server S, err error) S {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// StartFor starts a server for this test alone, with its folder under that of the test, and removes it at the end.
func StartFor(tb testing.TB, config Config) *Server {
	tb.Helper()
	s, err := StartOne(tb.Context(), tb.TempDir(), config)
	return Owned(tb, s, err)
}

// Piped starts a program whose input and output the test has. What it reports, it reports where the test does.
func Piped(tb testing.TB, cmd *exec.Cmd) (stdin io.WriteCloser, stdout io.ReadCloser) {
	tb.Helper()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return stdin, stdout
}

// Given returns the value of a variable that names programs which few machines have. Without it the test is skipped; whence says what
// makes the programs.
func Given(tb testing.TB, variable, whence string) string {
	tb.Helper()
	value := os.Getenv(variable)
	if value == "" {
		tb.Skip(variable + " is not set: " + whence + " and runs this")
	}
	return value
}

// Lacking skips a test for which something is missing that a machine need not have. Where the variable CI is set, everything must be
// there, and the test fails.
func Lacking(tb testing.TB, reason any) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatal(reason)
	}
	tb.Skip(reason)
}

// Parallel lets n tests run at the same time, unless the flag -parallel says how many. It is for tests that mostly wait: so many may
// run, however few processors there are. TestMain calls it before the tests.
func Parallel(n int) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // it fails only for an unknown flag
	}
}

// WithParams adds parameters, such as "ttl=5s", to a URL. Those that it has stay, also of the same name.
func WithParams(rawURL string, params ...string) string {
	separator := "?"
	if strings.Contains(rawURL, "?") {
		separator = "&"
	}
	return rawURL + separator + strings.Join(params, "&")
}
