package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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

// The program works as a vettool, on the library itself. The planted file exists only in the
// overlay.
func TestVettool(t *testing.T) {
	dir := t.TempDir()
	tool, planted, overlay := filepath.Join(dir, "holdfastvet"), filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "examples", "cron", "planted.go"): planted}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{planted: []byte(misuse), overlay: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "-overlay="+overlay, "./examples/cron")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("nothing was reported")
	}
	for _, want := range []string{"10:12: the hold of client.TryLock is dropped", "15:29: the function given to Client.Do ignores its context", "16:7: Shutdown waits"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%v\n%s", err, out)
	}
}
