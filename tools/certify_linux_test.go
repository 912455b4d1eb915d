package tools

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The servers that run nowhere else are certified at night, by a script that runs here on a folder.
func TestCertifyAtNight(t *testing.T) {
	nightly, err := os.ReadFile("../.github/workflows/nightly.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"mongo:7"`, `"mongo:8"`, `"postgres:16"`, `"postgres:17"`, `"mysql:8.4"`, `"mariadb:11.8"`, `"redis:8"`,
		"tools/certify.sh ${{ matrix.image }}", "path: .cache/certified"} {
		if !strings.Contains(string(nightly), want) {
			t.Errorf("nightly.yml lacks %s", want)
		}
	}
	serverprocess.Long(t, "builds the command, and waits for leases to end")
	dir := t.TempDir()
	report := "../.cache/certified/file.json"
	_ = os.Remove(report)
	if out, err := exec.CommandContext(t.Context(), "./certify.sh", "file:"+filepath.Join(dir, "locks")).CombinedOutput(); err != nil {
		t.Fatalf("certify.sh: %v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	var found struct{ Verdict string }
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || found.Verdict == "" || found.Verdict == "wrong" {
		t.Errorf("%s: %v: %s", report, err, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("certify has left %v (%v)", left, err)
	}
	out, err := exec.CommandContext(t.Context(), "./certify.sh", "mongo").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "neither a URL") {
		t.Errorf("neither a URL nor an image: %v\n%s", err, out)
	}
}
