package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/manual"
)

var update = flag.Bool("update", false, "write docs/command-reference.md anew")

// help returns what a command line with --help prints.
func help(t *testing.T, args ...string) string {
	t.Helper()
	var flags cli
	var out bytes.Buffer
	func() {
		defer func() {
			if r := recover(); r != (any)(exited{}) {
				t.Fatalf("%q does not end with the help: %v", args, r)
			}
		}()
		_, _ = newParser(&flags, &out, io.Discard, func() { panic(exited{}) }).Parse(append(args, "--help"))
	}()
	folder, err := backends.LocalFolder()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(out.String(), folder, "file:/home/YOU/.local/state/holdfast/locks")
}

// commands are all commands as they are written, such as "data get". The first is the program itself.
func commands() []string {
	all := []string{""}
	var add func(node *kong.Node)
	add = func(node *kong.Node) {
		for _, child := range node.Children {
			all = append(all, manual.Path(child))
			add(child)
		}
	}
	add(newParser(&cli{}, io.Discard, io.Discard, nil).Model.Node)
	return all
}

// Each command says how it is used.
func TestUsageLines(t *testing.T) {
	for _, command := range commands() {
		text := help(t, strings.Fields(command)...)
		usage, _, _ := strings.Cut(text, "\n")
		if want := strings.TrimSpace("Usage: holdfast " + command); !strings.HasPrefix(usage, want+" ") || strings.TrimSpace(usage) == want {
			t.Errorf("the help of %q begins with %q", command, usage)
		}
	}
}

// The reference of the command in docs/ is its help.
func TestReferencePage(t *testing.T) {
	const path = "../../docs/command-reference.md"
	t.Setenv("COLUMNS", "80")
	t.Setenv(envBackend, "")
	var page bytes.Buffer
	page.WriteString("# The command's help\n\n`make docs-reference` writes this page from the help of each command. " +
		"[The command](command.md) is the introduction.\n")
	for _, command := range commands() {
		text := help(t, strings.Fields(command)...)
		fmt.Fprintf(&page, "\n## %s\n\n```text\n%s\n```\n", strings.TrimSpace("holdfast "+command), strings.TrimSpace(text))
	}
	lines := strings.Split(page.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	want := strings.Join(lines, "\n")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(got), "\r\n", "\n") != want {
		t.Errorf("%s differs from the command's help: make docs-reference", path)
	}
}
