package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

// The package comment shows a valid crontab line. gofmt would rewrite a line that begins with
// "*", which it takes for a list.
func TestCrontabLine(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\t([0-9*/,-]+ ){4}[0-9*/,-]+  holdfast run --backend \S+ .*--try .* -- \S+$`)
	if text := file.Doc.Text(); !line.MatchString(text) {
		t.Errorf("the package comment has no crontab line with five fields and a backend:\n%s", text)
	}
}
