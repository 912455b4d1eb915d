package browsertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast"
)

// Of a lock that several share, the page shows each holder, and breaks the one whose button is pressed.
func TestSharedLock(t *testing.T) {
	u := backends()["file"](t)
	var tokens []uint64
	clients := map[string]*holdfast.Client{}
	for _, owner := range []string{"reader-a", "reader-b", "reader-c"} {
		clients[owner] = open(t, u, holdfast.WithOwner(owner))
		tokens = append(tokens, lock(t, clients[owner], "cache", holdfast.WithShared()).Token())
	}
	s := serve(t, u, "--allow-break")
	p := newTab(t)
	p.goTo(s.url)
	p.until(bodyHas("shared by 3") + " && " + bodyHas("reader-c and 2 more"))
	p.goTo(s.url + "#/lock/cache")
	p.until(`document.querySelectorAll("#holders-list li").length === 3 && document.getElementById("break").hidden`)
	second := "#holders-list li:nth-child(2) button"
	p.do(chromedp.Click(chromedp.CSS(second)))
	p.until(`question.open`)
	want := fmt.Sprintf("cache is held by reader-b, token %d", tokens[1])
	if text := p.text("#question"); !strings.Contains(text, want) || !strings.Contains(text, "2 more share the lock, and keep it.") {
		t.Errorf("the question: %s", text)
	}
	p.do(chromedp.Click(chromedp.CSS("#question button"))) // Cancel
	p.until(`!question.open && document.activeElement.matches("` + second + `")`)
	p.do(chromedp.Click(chromedp.CSS(second)), chromedp.Click(chromedp.CSS("#question .danger")))
	p.until(bodyHas(fmt.Sprintf("refuses the renewals of token %d", tokens[1])) + ` && document.querySelector("` + second + `").hidden`)
	r, err := clients["reader-a"].Inspect(t.Context(), "cache")
	if err != nil || len(r.Holders) != 3 || r.Holders[0].Broken || !r.Holders[1].Broken || r.Holders[2].Broken {
		t.Errorf("%+v, %v", r.Holders, err)
	}
}
