package main

import (
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// At a terminal no backend has to be set. Every message about acquiring names the one in use.
func TestDefaultBackendAtTerminal(t *testing.T) {
	home := t.TempDir()
	const where = "/.local/state/holdfast/locks"
	c := newConsole(t)
	c.enter("unset HOLDFAST_BACKEND XDG_STATE_HOME; export HOME=" + home + "; echo re''ady\n")
	c.expect("ready")
	c.enter("holdfast run --owner me lock -- sh -c 'echo i''n; exec sleep 100' &\n")
	c.expect("acquired \"lock\"", "on file:"+home+where, "in\r\n") // the command may write before the message appears
	c.enter("holdfast run --wait 2s lock -- true\n")
	c.expect("waiting for \"lock\": held by \"me\"")
	c.expect("on file:" + home + where)
	c.expect("lock \"lock\" is held by \"me\"")
	c.expect("on file:" + home + where)
	c.expectPrompt(exitcode.Held)
	c.enter("holdfast run --try lock -- true\n")
	c.expect("lock \"lock\" is held by \"me\"")
	c.expect("on file:" + home + where)
	c.expectPrompt(exitcode.Held)
	c.enter("holdfast status lock\n")
	c.expect("backend")
	c.expect("file:" + home + where)
	c.enter("holdfast ls | cat\n")
	c.expect("locks on file:"+home+where, "held") // cat may write before the message appears
	c.enter("kill %1\n")
	c.expect("released")

	// For a command that holdfast runs there is no default, even if it has the terminal.
	c.enter("holdfast run lock -- holdfast run other -- echo ne''ver\n")
	c.expect("no backend is set")
	c.expectPrompt(exitcode.Usage)
	if c.showed("never") {
		t.Error("the command ran")
	}
}
