//go:build unix

package endtoend

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// The full build of the command certifies the backends of all drivers that are modules of their own. The command's own test has the others.
func TestCertifyWithTheFullBuild(t *testing.T) {
	serverprocess.Long(t, "waits for leases on real servers to end")
	holdfast := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "-C", "../../cmd/holdfast", "build", "-tags", "full", "-o", holdfast, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for folder, url := range modules(t) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			var messages bytes.Buffer
			cmd := exec.Command(holdfast, "certify", "-q", "--json", "--timeout", "5m", "-b", url(t))
			cmd.Stderr = &messages
			out, err := cmd.Output()
			const doubtful = 3 // as a single server without replicas is
			if code := cmd.ProcessState.ExitCode(); code != 0 && code != doubtful {
				t.Fatalf("%v:\n%s\n%s", err, out, &messages)
			}
			var report struct {
				Complete bool
				Server   *string
				Clauses  []struct{ Kept, Broken int }
				Broken   []struct{ Clause string }
			}
			if err := json.Unmarshal(out, &report); err != nil {
				t.Fatal(err)
			}
			kept := 0
			for _, g := range report.Clauses {
				kept += g.Kept
			}
			if !report.Complete || report.Server == nil || len(report.Broken) > 0 || kept < lockertest.Clauses()/2 {
				t.Errorf("%d clauses were kept:\n%s", kept, out)
			}
			t.Logf("%s", out)
		})
	}
}
