// Package browsertest tests the page in a real Chromium, as "holdfast serve" serves it from a
// folder, MongoDB and Azurite. "make -f tools/tools.mk test-page" runs it; .ci/run does not.
package browsertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/postgres" // one more of the backends
	"github.com/holdfast-go/holdfast/test/backendtest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// within is the longest that a test waits for the page. How long it took is asserted where the
// time is the subject.
const within = time.Minute

// site is a name of this machine in the browser. Unlike 127.0.0.1 it is no secure context without TLS.
const site = "locks.example"

var (
	command string          // the path of holdfast
	browser context.Context // all tests share one process; each has tabs of its own
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-page-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		command = filepath.Join(dir, "holdfast")
		var out []byte
		if out, err = exec.Command("go", "build", "-C", filepath.Join("..", "..", "cmd", "holdfast"), "-o", command,
			".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	var path string
	if err == nil {
		path, err = testservers.Chromium()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("host-resolver-rules", "MAP "+site+" 127.0.0.1"))
	if os.Getuid() == 0 { // Chromium refuses to run as root with its sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "start Chromium:", err)
		return 1
	}
	return serverprocess.Run(shared{m})
}

// shared does not look for leftover goroutines: the browser's connection is one.
type shared struct{ *testing.M }

// backends are the URLs of fresh backends, by scheme.
func backends() map[string]func(testing.TB) string { return backendtest.Backends(driver.ReachMachine) }

// databaseOf returns the name of the database of a URL.
func databaseOf(t *testing.T, backend string) string {
	t.Helper()
	u, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// open returns a client that shuts down at the end of the test.
func open(t *testing.T, backend string, options ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	client, err := holdfast.Open(t.Context(), backend, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

func lock(t *testing.T, client *holdfast.Client, name string, options ...holdfast.Option) *holdfast.Hold {
	t.Helper()
	h := locktest.MustLock(t, client, name, options...)
	return h
}

// server is a running "holdfast serve".
type server struct {
	url     string
	log     *locktest.Log
	process *os.Process
}

var servedAt = regexp.MustCompile(`are at (http://\S+)`)

// serve starts "holdfast serve" for a backend.
func serve(t *testing.T, backend string, args ...string) *server {
	t.Helper()
	c := exec.Command(command, append([]string{"serve", "--backend", backend, "--listen", "127.0.0.1:0"}, args...)...)
	out, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s, found, ended := &server{log: &locktest.Log{}, process: c.Process}, make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			fmt.Fprintln(s.log, in.Text())
			if m := servedAt.FindStringSubmatch(in.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := c.Wait(); err != nil {
			t.Errorf("holdfast serve, after SIGTERM: %v", err)
		}
		if t.Failed() {
			t.Logf("holdfast serve:\n%s", s.log)
		}
	})
	select {
	case s.url = <-found:
	case <-ended:
		t.Fatalf("holdfast serve has ended:\n%s", s.log)
	case <-time.After(within):
		t.Fatal("holdfast serve does not serve")
	}
	return s
}

// tab is a tab of the browser. What its page logs as an error fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &tab{t, ctx}
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page's script failed: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				for _, a := range e.Args {
					t.Errorf("the page logged an error: %s", a.Value)
				}
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	// else only one tab of the browser has the focus
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return p
}

// call sends a command of the DevTools protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		p.t.Fatalf("%s: %v", command.Method, err)
	}
}

// do runs the steps, such as clicks.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.text("body"))
	}
}

// press presses keys one after another as a keyboard does: a key that the page handles types nothing.
func (p *tab) press(keys string) {
	p.t.Helper()
	for _, r := range keys {
		events := kb.Encode(r)
		down, up := *events[0], *events[len(events)-1]
		down.Type = input.DispatchKeyEventTypeKeyDown
		if len(events) > 2 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		call(p, input.DispatchKeyEvent, down)
		call(p, input.DispatchKeyEvent, up)
	}
}

// goTo opens an address and waits until the page is live.
func (p *tab) goTo(address string) {
	p.t.Helper()
	p.do(chromedp.Navigate(address))
	p.until(`document.getElementById("live")?.textContent === "Live"`)
}

// until waits for a condition in JavaScript. It asks again and again: what the DevTools protocol
// evaluates is not subject to the page's policy, a function made of text in the page would be.
func (p *tab) until(condition string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if err == nil && ok {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			p.t.Fatalf("until %s: %v\n%s", condition, err, p.text("body"))
		}
	}
}

// js evaluates an expression, which may be a promise.
func js[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", expression, err, p.text("body"))
	}
	return value
}

// text returns what is to be read in a node, for a failed test; it is empty if that fails, too.
func (p *tab) text(selector string) string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector(`+quote(selector)+`)?.innerText ?? "nothing"`))
	return text
}

// rowHas is a condition: the row of a lock has a text.
func rowHas(name, text string) string {
	return `[...document.querySelectorAll("#rows tr")].some(r => r.querySelector("a").textContent === ` + quote(name) +
		` && r.innerText.includes(` + quote(text) + `))`
}

// bodyHas is a condition: a text can be read on the page.
func bodyHas(text string) string { return `document.body.innerText.includes(` + quote(text) + `)` }

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

func readAll(r io.ReadCloser) string {
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(r)
	return string(text) + errorText(err)
}

func errorText(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return err.Error()
}
