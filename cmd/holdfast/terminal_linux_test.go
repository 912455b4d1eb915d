package main

import "testing"

const ctrlD = "\x04"

func TestBreakAsksAtATerminal(t *testing.T) {
	c := newConsole(t)
	c.enter("holdfast run -q --owner web-1 --ttl 60s billing -- sleep 600 & until holdfast status billing 2>&1 | grep -q web-1; do sleep " +
		"0.1; done; echo he''ld\n")
	c.expect("held\r\n")
	for _, answer := range []string{"\n", "n\n", ctrlD} {
		c.enter("holdfast break billing\n")
		c.expect(`billing is held by "web-1" (token `)
		c.expect("Its renewals will be refused from now on.")
		c.expect("Break it? [y/N] ")
		c.enter(answer)
		c.expect(`"billing" was not broken`)
		c.expectPrompt(1)
	}
	c.enter("holdfast status billing\n")
	c.expect("billing: held\r\n")
	c.enter("holdfast break billing --now\n")
	c.expect("THE LOCK BECOMES FREE AT ONCE.")
	c.expect("Break it? [y/N] ")
	c.enter("y\n")
	c.expect(`broke "billing": it is free.`)
	c.expectPrompt(0)
}

func TestLockAtATerminal(t *testing.T) {
	c := newConsole(t)
	c.enter("holdfast lock billing --owner me\n")
	c.expect("acquired")
	c.enter("some text\n")
	c.enter(ctrlD)
	c.expect("released")
	c.expectPrompt(0)
	// Until it has ended, it reads what is typed.
	c.enter("holdfast lock billing --owner me; echo code=$?.\n")
	c.expect("acquired")
	c.enter(ctrlC)
	c.expect("released")
	c.expect("code=130.")
}

// In the background it would be stopped when it reads the terminal, and lose the lock that its caller believes to have.
func TestLockInTheBackground(t *testing.T) {
	c := newConsole(t)
	c.enter("holdfast lock billing & wait $!; echo code=$?.\n")
	c.expect("standard input is the terminal, and this job is in the background: give it another input")
	c.expect("code=2.")
	c.enter("holdfast status billing\n")
	c.expect("billing: free")
	c.expectPrompt(0)
	c.enter("sleep 60 | holdfast lock billing & echo $((40+2))\n")
	c.expect("42", "acquired")
	c.enter("kill %1; wait; echo ov''er\n")
	c.expect("released", "over")
}

func TestElectAtATerminal(t *testing.T) {
	c := newConsole(t)
	c.enter("holdfast elect billing --owner me\n")
	c.expect(`this process leads "billing"`, `held by "me"`) // in either order: two goroutines report them
	c.enter(ctrlC)
	c.expectPrompt(130)
	c.enter("holdfast status billing\n")
	c.expect("billing: free")
}

func TestWatchAtATerminal(t *testing.T) {
	c := newConsole(t)
	c.enter("holdfast watch billing\n")
	c.expect("  billing  free")
	c.enter(ctrlZ)
	c.expect("Stopped")
	c.enter("holdfast run -q --owner web-1 billing -- echo do''ne\n")
	c.expect("done\r\n")
	c.enter("fg\n")
	c.expect(`  billing  free, last held by web-1 (token `)
	c.enter(ctrlC)
	c.expectPrompt(130)
	c.enter("holdfast watch --every 100ms\n")
	c.expect(`  billing  free, last held by web-1 (token `)
	c.enter(ctrlC)
	c.expectPrompt(130)
}
