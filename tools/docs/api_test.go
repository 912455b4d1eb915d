package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var exported = regexp.MustCompile(`(?m)^func (With\w+)|^\t((?:Event|Err)[A-Z]\w*)\b`)

// The page with the API in one screen names every option, event and error.
func TestAPIPageIsComplete(t *testing.T) {
	page, found := read(t, "docs/api.md"), 0
	for folder, prefix := range map[string]string{"": "", "leases": "leases.", "partitions": "partitions."} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range exported.FindAllStringSubmatch(string(text), -1) {
				name := prefix + m[1] + m[2]
				if found++; !strings.HasSuffix(path, "_test.go") && !regexp.MustCompile("`"+regexp.QuoteMeta(name)+`\b`).MatchString(page) {
					t.Errorf("docs/api.md does not name %s", name)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d names were found", found)
	}
}
