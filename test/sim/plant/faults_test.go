package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// Each fault fits the present code, and leaves it code.
func TestFaultsFit(t *testing.T) {
	names := map[string]bool{}
	for _, f := range faults {
		if names[f.Name] {
			t.Errorf("two faults have the name %q", f.Name)
		}
		names[f.Name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", "..", f.File))
		if err != nil {
			t.Error(err)
			continue
		}
		changed, err := f.apply(string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), f.File, changed, 0); err != nil || changed == string(text) {
			t.Errorf("%q: %v", f.Name, err)
		}
	}
}
