package main

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

func TestJobControl(t *testing.T) {
	t.Run("a command reads the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'read line; echo got $line; exit 3'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expectPrompt(3)
	})
	t.Run("a script reads the terminal after the command", func(t *testing.T) {
		c := newConsole(t)
		c.enter("sh -c 'holdfast run lock -- sh -c \"read line; echo got \\$line\"; read line; echo and $line'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect("released")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-C ends the command and releases the lock", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-C while a command has the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- sh -c 'read line; echo got $line; exec sleep 100'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-C during --min-hold, after a command had the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run -v --min-hold 1h lock -- sh -c 'read line; echo got $line'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect(`keeping "lock"`)
		c.enter(ctrlC)
		c.expect("released")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-Z and fg", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("jobs; echo $((40+2)); kill -TERM %1; fg\n")
		c.expect("Stopped")
		c.expect("42")
		if c.showed("tty input") || c.showed("TTIN") {
			t.Error("holdfast has stopped as one that wants the terminal: sudo and some shells would give it, and continue")
		}
		c.expect("released")
		c.expectPrompt(143)
	})
	t.Run("Ctrl-Z for a command that stops itself by SIGSTOP", func(t *testing.T) {
		c := newConsole(t)
		fifo := t.TempDir() + "/fifo"
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		c.enter("holdfast run --ttl 60s lock -- sh -c 'trap \"kill -STOP $$\" TSTP; echo i''n; " +
			"while :; do read line <" + fifo + "; done'\n")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2)); kill -TERM %1; fg\n")
		c.expect("42")
		c.expect("released")
		c.expectPrompt(143)
	})
	t.Run("a command that has the terminal stops itself by SIGSTOP", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read line; echo got $line; kill -STOP $$; echo goes o''n'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect("suspended together with the command")
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.expect("goes on", "released")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-Z stops each run of a nest", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s a -- holdfast run --ttl 60s b -- sh -c 'echo i''n; exec sleep 100'\n")
		c.expect("in\r\n")
		for range 2 {
			c.enter(ctrlZ)
			c.expect("suspended together with the command; \"b\"", "suspended together with the command; \"a\"")
			c.enter("echo $((40+2)); fg\n")
			c.expect("42")
		}
		c.enter(ctrlC)
		c.expect("released \"b\"", "released \"a\"")
		c.expectPrompt(130)
	})
	t.Run("Ctrl-Z while a command has the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read a; echo got $a; read b; echo and $b'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("bg, and another stop, after Ctrl-Z while a command has the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read line; echo got $line; exec sleep 100'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("bg; echo $((40+2)); kill -TSTP %1\n")
		c.expect("42")
		c.expect("suspended together with the command")
		c.expectStopped()
		c.enter("kill -TERM %1; fg\n")
		c.expect("released")
		c.expectPrompt(143)
	})
	t.Run("stopped for longer than the TTL", func(t *testing.T) {
		c := newConsole(t)
		fifo := t.TempDir() + "/fifo"
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		c.enter("holdfast run --ttl 8s lock -- sh -c 'trap \"echo w\"\"oke\" CONT; echo i''n; while :; do read line <" + fifo + "; done'\n")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("holdfast run lock -- echo $((40+2))\n")
		c.expect("42")
		c.enter("fg\n")
		c.expect("lost \"lock\"")
		c.expectPrompt(exitcode.Lost)
		if c.showed("woke") {
			t.Error("the command continued after the lease had expired")
		}
	})
	t.Run("a job in the background that wants the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read line; echo got $line' &\n")
		c.expect("suspended together with the command")
		// It says so before it stops; fg before that would continue what still runs.
		c.enter("until grep -q '^State:.T' /proc/$!/status; do sleep 0.1; done; echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("hello\n")
		c.expect("got hello")
		c.expect("released")
		c.expectPrompt(0)
	})
	t.Run("the window is closed while the job is stopped", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s lock -- sh -c 'read a; echo got $a; read b'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.enter("echo $((40+2))\n") // the message comes before the stop
		c.expect("42")
		if err := c.pty.Close(); err != nil {
			t.Fatal(err)
		}
		next := exec.Command("holdfast", "run", "--wait", patience.String(), "lock", "--", "true")
		next.Env = c.env
		if out, err := next.CombinedOutput(); err != nil {
			t.Errorf("the lock was left behind: %v\n%s", err, out)
		}
	})
	t.Run("Ctrl-Z where there is no shell", func(t *testing.T) {
		c := openConsole(t, "holdfast", "run", "lock", "--", "sh", "-c", "echo in; read line; echo got $line; read line; echo and $line")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.enter("hello\n")
		c.expect("got hello") // now the command has the terminal
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released")
	})
	t.Run("Ctrl-Z in a script that no shell continues", func(t *testing.T) {
		c := openConsole(t, "sh", "-c", "holdfast run lock -- sh -c 'echo in; read line; echo got $line; read line; echo and $line'; echo over")
		c.expect("in\r\n")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released", "over")
	})
	t.Run("a nest reads the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s a -- holdfast run --ttl 60s b -- sh -c 'read line; echo got $line; read line; echo and $line'\n")
		c.expect(`acquired "b"`)
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command; \"a\"")
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world")
		c.expectPrompt(0)
	})
	t.Run("a nest reads the terminal where there is no shell", func(t *testing.T) {
		c := openConsole(t, "holdfast", "run", "a", "--", "holdfast", "run", "b", "--",
			"sh", "-c", "echo in; read line; echo got $line; read line; echo and $line")
		c.expect("in\r\n")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.enter("world\n")
		c.expect("and world")
		c.expect("released \"a\"")
	})
	t.Run("a nest through a script reads the terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run --ttl 60s a -- sh -c 'holdfast run --ttl 60s b -- " +
			"sh -c \"read line; echo got \\$line; read line; echo and \\$line\"; echo ov''er'\n")
		c.expect(`acquired "b"`)
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command; \"a\"")
		c.expectStopped()
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world", "over")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-Z in a script stops the script, too", func(t *testing.T) {
		c := newConsole(t)
		c.enter("sh -c 'holdfast run --ttl 60s lock -- sh -c \"read a; echo got \\$a; read b; echo and \\$b\"; echo ov''er'\n")
		c.expect("acquired")
		c.enter("hello\n")
		c.expect("got hello")
		c.enter(ctrlZ)
		c.expect("suspended together with the command")
		c.expectStopped()
		c.enter("echo $((40+2)); fg\n")
		c.expect("42")
		c.enter("world\n")
		c.expect("and world", "over")
		c.expectPrompt(0)
	})
	t.Run("a SIGTSTP to holdfast alone stops no script", func(t *testing.T) {
		c := newConsole(t)
		c.enter("sh -c 'holdfast run --ttl 60s lock -- sh -c \"echo i\"\"n; exec sleep 100\" & read line; kill -TSTP $!; " +
			"until grep -q \"^State:.T\" /proc/$!/status; do sleep 0.1; done; echo goes o\"\"n; kill -CONT $!; kill $!; wait'\n")
		c.expect("in\r\n")
		c.enter("\n")
		c.expect("goes on", "released")
		c.expectPrompt(0)
	})
	t.Run("Ctrl-Z in a script that no shell continues, before the command has the terminal", func(t *testing.T) {
		fifo := t.TempDir() + "/fifo"
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		c := openConsole(t, "sh", "-c", "holdfast run lock -- sh -c 'trap \"echo w\"\"oke; exit\" CONT; echo in; while :; do read line <"+
			fifo+"; done'; echo over")
		c.expect("in\r\n")
		c.enter(ctrlZ)
		c.expect("woke", "released", "over")
	})
	t.Run("a pipeline keeps its terminal", func(t *testing.T) {
		c := newConsole(t)
		c.enter("holdfast run lock -- echo to the pipe | { read a; read b </dev/tty; echo $a, $b; }\n")
		c.expect("released")
		c.enter("hello\n")
		c.expect("to the pipe, hello")
		c.expectPrompt(0)
	})
}
