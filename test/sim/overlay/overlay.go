// Package overlay has what changes the library's code without changing a file: the compiler gets the changed text as an overlay.
package overlay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root returns the folder of the library's module.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/holdfast-go/holdfast").Output()
	return strings.TrimSpace(string(out)), err
}

// Find returns where in the text of a file the old text of a change begins, which is there once.
func Find(file, text, name, old string) (at int, err error) {
	if n := strings.Count(text, old); n != 1 {
		return 0, fmt.Errorf("%s has the code of %q %d times, want once: change the entry with the code", file, name, n)
	}
	return strings.Index(text, old), nil
}

// Write writes changed files, by their paths below root, and the overlay with them into dir, and returns the overlay. A file that does
// not exist in root is new.
func Write(root, dir string, changed map[string]string) (overlay string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = to
	}
	config, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, config, 0o600)
}
