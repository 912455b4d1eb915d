//go:build unix

package browsertest

import (
	"syscall"
	"testing"
)

// When no answer comes, the page is live no longer than the next answer takes, and later says that it is not connected, too. The
// time left is dropped with that. It comes back with the answers.
func TestNoAnswer(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	lock(t, client, "job")
	s := serve(t, u, "--refresh", "100ms")
	p := newTab(t)
	p.goTo(s.url)
	p.until(rowHas("job", "held") + " && " + timeLeft(" s", true))
	live := colour(p, ".live")
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		if err := s.process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(resume) // before its end is waited for
	p.until(bodyHas("No answer from the backend (last answer") + " && " + timeLeft("not known", false))
	if colour(p, ".live") == live {
		t.Error("the mark is as if it were live")
	}
	p.until(bodyHas("Not connected: what you see may be old (last answer") + " && " + timeLeft("not known", false))
	resume()
	p.until(`document.getElementById("live").textContent === "Live" && ` + timeLeft(" s", true))
	if colour(p, ".live") != live {
		t.Error("the mark is not as before")
	}
}
