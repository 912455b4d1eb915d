package browsertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/web"
)

// The page says of a lease that never ends who may have taken it and what a break does, and breaks its holder, which has no token.
func TestBreakOfALeaseThatNeverEnds(t *testing.T) {
	l := &locktest.Endless{Locker: memory.New()}
	client, err := holdfast.New(l)
	if err != nil {
		t.Fatal(err)
	}
	h, err := web.New(client, web.Options{Logger: slog.New(slog.DiscardHandler), MayBreak: func(*http.Request) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		s.Close()
		if err := client.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p := newTab(t)
	p.goTo(s.URL)
	p.until(rowHas("job", "never ends"))
	p.goTo(s.URL + "/#/lock/job")
	p.until(bodyHas("This lease never ends: another program or a person took it, not Holdfast."))
	p.do(chromedp.Click(chromedp.CSS("#break")))
	p.until(`question.open`)
	question := p.text("#question")
	for _, want := range []string{"an owner that the backend does not report, token unknown", "is not notified, and may still be at work",
		"Its lease never ends, so the lock becomes free at once"} {
		if !strings.Contains(question, want) {
			t.Errorf("the question does not have %q: %s", want, question)
		}
	}
	p.do(chromedp.Click(chromedp.CSS("#question .danger")))
	p.until(bodyHas("the unknown holder was broken from this page"))
	if target := l.Broken.Load(); target == nil || *target != driver.BreakUnknown() {
		t.Errorf("broke %v", target)
	}
}
