package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/integration/env"
)

// tools/certify.sh, which certifies other images at night, starts a server of the suite's image, certifies it, and removes it.
func TestCertifyImages(t *testing.T) {
	t.Parallel()
	env.RequireContainers(t)
	for product, image := range map[string]string{"MongoDB": env.MongoImage(), "PostgreSQL": env.PostgresImage()} {
		t.Run(product, func(t *testing.T) {
			t.Parallel()
			if !regexp.MustCompile(`^(mongo|postgres):\d`).MatchString(path.Base(image)) {
				t.Skipf("certify.sh does not start the image %s, which the environment names", image)
			}
			report := filepath.Join("../.cache/certified", strings.Replace(path.Base(image), ":", "-", 1)+".json")
			_ = os.Remove(report)
			if out, err := exec.Command("../tools/certify.sh", image).CombinedOutput(); err != nil {
				t.Fatalf("certify.sh %s: %v\n%s", image, err, out)
			}
			text, err := os.ReadFile(report)
			var found struct{ Verdict, Server string }
			if err == nil {
				err = json.Unmarshal(text, &found)
			}
			if err != nil || !strings.HasPrefix(found.Server, product+" ") || strings.Contains(string(text), "127.0.0.1") {
				t.Errorf("%s: %v\n%s", report, err, text)
			}
			t.Logf("%s: %s: %s", image, found.Server, found.Verdict)
		})
	}
}
