package browsertest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast"
)

// A change on the backend is on the page within a second. A busy machine gets several chances for
// that, but none of them may take long.
func TestChangesAppear(t *testing.T) {
	const changes, wanted, longest = 6, time.Second, 10 * time.Second
	for name, backend := range backends() {
		t.Run(name, func(t *testing.T) {
			u := backend(t)
			client := open(t, u, holdfast.WithOwner("worker-7"))
			lock(t, client, "other")
			s := serve(t, u)
			list, detail := newTab(t), newTab(t)
			list.goTo(s.url)
			list.until(rowHas("other", "worker-7"))
			detail.goTo(s.url + "#/lock/" + url.PathEscape("job/nightly report"))
			detail.until(bodyHas("no record"))
			fastest := map[*tab]time.Duration{list: longest, detail: longest}
			see := func(p *tab, condition string, began time.Time) {
				p.until(condition)
				took := time.Since(began)
				if took > longest {
					t.Errorf("a change took %v", took)
				}
				fastest[p] = min(fastest[p], took)
				t.Logf("%s: %v", condition[len(condition)-40:], took.Round(time.Millisecond))
			}
			for range changes {
				h := lock(t, client, "job/nightly report")
				began := time.Now()
				token := strconv.FormatUint(h.Token(), 10)
				see(list, rowHas("job/nightly report", token)+" && "+rowHas("job/nightly report", "worker-7"), began)
				see(detail, bodyHas("held by worker-7, token "+token), began)
				if err := h.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				began = time.Now()
				see(list, rowHas("job/nightly report", "free"), began)
				see(detail, bodyHas("free, last held by worker-7"), began)
			}
			for _, took := range fastest {
				if took > wanted {
					t.Errorf("the fastest change took %v, want %v", took, wanted)
				}
			}
		})
	}
}

// A row stays the same node while its content changes, so that a click, a selection and the focus
// survive the updates.
func TestRowsStay(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	a := lock(t, client, "a")
	lock(t, client, "b")
	s := serve(t, u, "--refresh", "100ms")
	p := newTab(t)
	p.goTo(s.url)
	p.until(rowHas("a", "held") + " && " + rowHas("b", "held"))
	js[any](p, `rows.children[1].querySelector("a").focus(); window.before = [...rows.children];
		getSelection().selectAllChildren(rows.children[1].children[2])`)
	if err := a.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock(t, client, "a0") // between them
	p.until(rowHas("a", "free") + " && " + rowHas("a0", "held"))
	same := js[bool](p, `before[1] === rows.children[1] && before[0] === rows.children[2]`) // a free lock comes after those that are held
	focused := js[bool](p, `document.activeElement.textContent === "b"`)
	selected := js[string](p, `getSelection().toString().trim()`)
	if !same || !focused || selected == "" {
		t.Errorf("same nodes %v, focus kept %v, selected %q", same, focused, selected)
	}
}

// The address says what is shown, so that it can be sent to a colleague.
func TestAddressSaysWhatIsShown(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u, holdfast.WithOwner("pod-1"))
	for _, name := range []string{"mail/a", "mail/b", "bill"} {
		lock(t, client, name)
	}
	if err := lock(t, client, "mail/c").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := serve(t, u, "--base-path", "/ops/locks/", "--prefix", "mail/")
	p := newTab(t)
	p.resize(1440, 900) // with the table's head
	p.goTo(s.url)
	p.until(`document.getElementById("counts").textContent === "3 locks: 2 held, 1 free"`)
	p.do(chromedp.SendKeys(chromedp.CSS("#text"), "MAIL/"), chromedp.SetValue(chromedp.CSS("#state"), "held"))
	js[any](p, `document.getElementById("state").dispatchEvent(new Event("change"))`)
	p.until(`location.hash === "#/?q=MAIL%2F&state=held" && rows.children.length === 2`)
	p.do(chromedp.Click(chromedp.CSS(`[data-sort=name]`)))
	p.until(`location.hash.endsWith("sort=name")`)
	p.do(chromedp.Click(chromedp.CSS(`[data-sort=name]`)))
	p.until(`location.hash.endsWith("desc=1") && rows.children[0].innerText.startsWith("mail/b")`)
	address := js[string](p, `location.href`)
	q := newTab(t)
	q.goTo(address)
	q.until(`rows.children.length === 2 && rows.children[0].innerText.startsWith("mail/b") &&
		document.getElementById("text").value === "MAIL/"`)
	p.do(chromedp.Click(chromedp.CSS(`#rows a`)))
	p.until(`location.hash === "#/lock/mail%2Fb" && ` + bodyHas("Held since"))
	p.do(chromedp.Click(chromedp.CSS(`#back`)))
	p.until(`rows.children.length === 2 && document.activeElement.textContent === "mail/b"`)
	js[any](p, `location.hash = "#/lock/%E0%A4%A"`) // no valid escape
	p.until(bodyHas("Not connected"))
	js[any](p, `location.hash = "#/?state=odd&sort=odd&page=x"`)
	p.until(`rows.children.length === 3`)
}

// Locks that are held come before those that are free, the page names its backend, and nothing is green before it is connected.
func TestFirstSight(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	for _, name := range []string{"a", "b", "c"} {
		if err := lock(t, client, name).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lock(t, client, "z")
	s := serve(t, u)
	p := newTab(t)
	p.goTo(s.url)
	p.until(`rows.children.length === 4 && rows.children[0].innerText.startsWith("z") && rows.children[1].innerText.startsWith("a")`)
	p.until(`document.getElementById("backend").textContent === ` + strconv.Quote(u))
	p.until(`document.getElementById("live").textContent === "Live" && !document.querySelector(".live").classList.contains("waiting")`)
	answer, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), `class="live waiting"`) {
		t.Errorf("the page begins as connected (%v)", err)
	}
}

// A tab that nobody sees asks the backend for nothing, and is up to date when it is seen again.
func TestHiddenTab(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	h := lock(t, client, "job")
	s := serve(t, u, "--refresh", "100ms")
	p := newTab(t)
	p.goTo(s.url)
	p.until(rowHas("job", "held"))
	visible := func(state string) {
		js[any](p, `Object.defineProperty(document, "hidden", {configurable: true, get: () => `+state+
			`}); document.dispatchEvent(new Event("visibilitychange"))`)
	}
	visible("true")
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests := js[float64](p, `performance.clearResourceTimings(), new Promise(done =>
		setTimeout(() => done(performance.getEntriesByType("resource").length), 1500))`)
	still := js[bool](p, rowHas("job", "held"))
	if requests != 0 || !still {
		t.Errorf("%v requests while hidden, the old row is shown: %v", requests, still)
	}
	visible("false")
	p.until(rowHas("job", "free"))
}

// colour returns the colour of the mark before a node.
func colour(p *tab, selector string) string {
	return js[string](p, `getComputedStyle(document.querySelector(`+quote(selector)+`), "::before").color`)
}

// timeLeft is a condition: the first row has a text as its time left, its bar is shown or hidden, and it is not "expires soon".
func timeLeft(text string, bar bool) string {
	const cell = `document.querySelector("#rows .left")`
	return fmt.Sprintf(`%[1]s?.innerText.includes(%[2]s) && %[1]s.querySelector("progress").hidden === %[3]t && !%[4]s`,
		cell, quote(text), !bar, bodyHas("expires soon"))
}

// While the backend fails, the page says so and shows what was read last: without the time left, which it cannot know, and
// without a green mark.
func TestBackendFails(t *testing.T) {
	u := backends()["file"](t)
	client := open(t, u)
	lock(t, client, "job")
	s := serve(t, u, "--refresh", "100ms")
	p, detail := newTab(t), newTab(t)
	detail.goTo(s.url + "#/lock/job")
	detail.until(bodyHas("Held since"))
	p.goTo(s.url)
	p.until(rowHas("job", "held") + " && " + timeLeft(" s", true))
	live, held := colour(p, ".live"), colour(p, ".state")
	breakFolder(t, u)
	p.until(bodyHas("Connected, but the backend fails") + " && " + bodyHas("The backend cannot be read. The page shows what was read last.") +
		" && " + rowHas("job", "") + " && " + timeLeft("not known", false))
	detail.until(bodyHas("not known") + " && !" + bodyHas("expires soon"))
	if a, b := colour(p, ".live"), colour(p, ".state"); a == live || b == held {
		t.Errorf("the marks are %s and %s as before", a, b)
	}
	late := newTab(t) // after a while in which nobody has looked it has no answer at all
	p.do(chromedp.Navigate("about:blank"))
	detail.do(chromedp.Navigate("about:blank"))
	other := serve(t, u)
	late.do(chromedp.Navigate(other.url))
	late.until(bodyHas("The backend cannot be read.") + " && !" + bodyHas("was read last") + " && !" + bodyHas("no lock yet") +
		` && document.getElementById("age").textContent === ""`)
}
