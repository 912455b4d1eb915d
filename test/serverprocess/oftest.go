package serverprocess

import (
	"io"
	"os"
	"os/exec"
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
