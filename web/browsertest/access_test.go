package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// sizes are those of a phone, a tablet and a wide screen.
var sizes = []struct{ width, height int64 }{{375, 760}, {768, 900}, {1440, 900}}

func (p *tab) resize(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

func (p *tab) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: name}}})
}

// shows are the states in which the page is checked, in the order in which they are reached.
var shows = []struct {
	name string
	show func(p *tab, base string)
}{
	{"list", func(p *tab, base string) {
		p.goTo(base)
		p.until(`rows.children.length > 5`)
	}},
	{"search", func(p *tab, base string) {
		p.goTo(base + "#/?q=billing")
		p.until(`document.getElementById("counts").textContent.includes("shown of")`)
	}},
	{"nothing", func(p *tab, base string) {
		p.goTo(base + "#/?q=nothing-has-this-name")
		p.until(bodyHas("No lock matches"))
	}},
	{"instances", func(p *tab, base string) {
		p.goTo(base + "#/instances")
		p.until(bodyHas("instances hold locks"))
	}},
	{"detail", func(p *tab, base string) {
		p.goTo(base + "#/lock/billing%2Fleader")
		p.until(bodyHas("Held since"))
	}},
	{"question", func(p *tab, base string) {
		p.goTo(base + "#/lock/billing%2Fleader")
		p.do(chromedp.Click(chromedp.CSS("#break")))
		p.until(`question.open`)
	}},
	{"refusal", func(p *tab, base string) {
		p.goTo(base + "#/lock/billing%2Fleader")
		p.do(chromedp.Click(chromedp.CSS("#break")))
		p.until(`question.open`)
		js[any](p, `window.fetch = async () => new Response('{"error": "another holds the lock now; nothing was broken"}', {status: 409})`)
		p.do(chromedp.Click(chromedp.CSS("#question .danger")))
		p.until(bodyHas("Not broken"))
	}},
}

// axe-core finds nothing in any state, at any width, in either scheme, and nothing makes the page
// scroll sideways.
func TestAccessibility(t *testing.T) {
	path, err := testservers.Axe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	axe, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	base := sampleData(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s/%d", scheme, size.width), func(t *testing.T) {
				p := newTab(t)
				p.resize(size.width, size.height)
				p.scheme(scheme)
				for _, s := range shows {
					s.show(p, base)
					p.check(s.name, string(axe))
					js[any](p, `question.open && question.close()`)
					p.do(chromedp.Navigate("about:blank"))
				}
				p.failing(base)
				p.check("failing", string(axe))
			})
		}
	}
}

// failing shows the list with a backend that fails.
func (p *tab) failing(base string) {
	p.t.Helper()
	p.goTo(base)
	js[any](p, `{
		const real = JSON.parse;
		JSON.parse = (text) => ({...real(text), error: "holdfast: list: the backend does not answer"});
	}`)
	p.until(bodyHas("The backend cannot be read"))
}

// check runs axe-core on what is shown.
func (p *tab) check(what, axe string) {
	p.t.Helper()
	result := js[string](p, axe+`;
		axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
			.then(r => JSON.stringify(r.violations.map(v => ({rule: v.id, help: v.help,
				nodes: v.nodes.map(n => n.html + ": " + n.failureSummary)}))))`)
	var violations []struct {
		Rule, Help string
		Nodes      []string
	}
	if err := json.Unmarshal([]byte(result), &violations); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range violations {
		p.t.Errorf("%s: %s: %s\n%s", what, v.Rule, v.Help, strings.Join(v.Nodes, "\n"))
	}
	if wide := js[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		p.t.Errorf("%s: the page is %d pixels wider than the window", what, wide)
	}
}

// A reader with a keyboard alone can search, page, choose, read, and break a lock.
func TestKeyboard(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u, holdfast.WithOwner("worker-7"))
	for i := range 60 {
		lock(t, client, fmt.Sprintf("job-%02d", i))
	}
	s := serve(t, u, "--allow-break")
	p := newTab(t)
	p.goTo(s.url)
	p.until(`rows.children.length === 50`)
	press := func(keys string) { t.Helper(); p.press(keys) }
	focused := func(text string) {
		t.Helper()
		p.until(`(document.activeElement.textContent.trim() || document.activeElement.id) === ` + quote(text))
	}
	press(kb.Tab)
	focused("Skip to the content")
	press(kb.Enter)
	p.until(`document.activeElement.id === "main" && location.hash === ""`)
	press("n")
	p.until(`rows.children.length === 10 && location.hash === "#/?page=2"`)
	press("p")
	p.until(`rows.children.length === 50`)
	press("/")
	p.until(`document.activeElement.id === "text"`)
	press("job-4")
	p.until(`rows.children.length === 10`)
	press(kb.Escape)
	p.until(`document.activeElement === document.body`)
	press(kb.ArrowDown + kb.ArrowDown)
	focused("job-41")
	press("k")
	focused("job-40")
	press("j")
	focused("job-41")
	press(kb.Enter)
	p.until(`location.hash === "#/lock/job-41" && ` + bodyHas("Held since"))
	focused("job-41") // the heading
	press(kb.Tab)
	focused("Break…")
	press(kb.Enter)
	p.until(`question.open`)
	focused("Cancel")
	press(kb.Escape)
	p.until(`!question.open`)
	focused("Break…")
	press(kb.Enter)
	p.until(`question.open`)
	press(kb.Tab)
	focused("Break the lock")
	press(kb.Enter)
	p.until(bodyHas("Broken: the backend refuses"))
	if !isBroken(t, client, "job-41") {
		t.Error("the lock is not broken")
	}
	press(kb.Escape)
	p.until(`rows.children.length === 10`)
	focused("job-41")

	// Letters are keys only as long as the reader wants that.
	js[any](p, `document.getElementById("letters").focus()`)
	press(" ")
	press("/")
	p.until(`document.activeElement.id === "letters" && !document.activeElement.checked`)
	p.do(chromedp.Reload())
	p.until(`!document.getElementById("letters").checked`)
	press("/")
	if js[bool](p, `document.activeElement.id === "text"`) {
		t.Error("a letter is a key although that is switched off")
	}
	js[any](p, `document.getElementById("letters").click()`) // the choice is kept by the browser, for other tests, too

	// What has the focus shows it.
	for range 8 {
		press(kb.Tab)
		if js[bool](p, `document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === "none"`) {
			t.Errorf("nothing shows that %s has the focus", js[string](p, `document.activeElement.outerHTML`))
		}
	}
}
