package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const misuse = `package main

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

func dropped(ctx context.Context, client *holdfast.Client) error {
	_, err := client.TryLock(ctx, "a")
	return err
}

func misuse(ctx context.Context, client *holdfast.Client, work func(context.Context) error) error {
	return client.Do(ctx, "b", func(context.Context) error {
		_ = client.Shutdown(ctx)
		return work(ctx)
	})
}
`

// The program works as a vettool, on the library itself.
func TestVettool(t *testing.T) {
	out := vet(t, build(t), misuse)
	for _, want := range []string{"10:12: the hold of client.TryLock is dropped", "15:29: the function given to Client.Do ignores its context",
		"16:7: Shutdown waits"} {
		if !strings.Contains(out, want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// prelude declares what the code on the page uses.
const prelude = `package main

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
)

var (
	ctx            context.Context
	client         *holdfast.Client
	hold           *holdfast.Hold
	names          []string
	fn             func(context.Context) error
	work           func(context.Context, int) error
	db             *driver.Database
	session        *driver.Session
	accounts       *driver.Collection
	filter, change bson.D
)

var _ = mongo.NewGuard
var _ = names
`

var block = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// On the page of the checks, the lines that say "reported" are reported, and no others.
func TestPage(t *testing.T) {
	const page = "../docs/holdfastvet.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code, want := prelude, map[int]bool{}
	for _, m := range block.FindAllSubmatchIndex(text, -1) {
		line := 1 + strings.Count(string(text[:m[2]]), "\n")
		code += "\nfunc _() error {\n//line page.md:" + strconv.Itoa(line) + "\n" + string(text[m[2]:m[3]]) + "_ = err\npanic(0)\n}\n"
		for i, l := range strings.Split(string(text[m[2]:m[3]]), "\n") {
			if strings.Contains(l, "// reported") {
				want[line+i] = true
			}
		}
	}
	out := vet(t, build(t), code)
	for _, m := range regexp.MustCompile(`page\.md:(\d+)`).FindAllStringSubmatch(out, -1) {
		line, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !want[line] {
			t.Errorf("line %d is reported", line)
		}
		want[line] = false
	}
	for line, missing := range want {
		if missing {
			t.Errorf("line %d is not reported", line)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func build(t *testing.T) (tool string) {
	t.Helper()
	tool = filepath.Join(t.TempDir(), "holdfastvet.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return tool
}

// vet checks an example with one more file, which exists only in an overlay. It
// returns the reports.
func vet(t *testing.T, tool, code string) string {
	t.Helper()
	const folder = "examples/cron" // it has no observer, which would notice a loss
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, folder, "planted.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{file: []byte(code), overlay: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "-overlay="+overlay, "./"+folder)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("nothing was reported")
	}
	return string(out)
}
