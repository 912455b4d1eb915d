package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
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
	folder, err := localFolderURL()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(out.String(), folder, "file:/home/YOU/.local/state/holdfast/locks")
}

// The reference of the command in docs/ is its help.
func TestReferencePage(t *testing.T) {
	const path = "../../docs/command-reference.md"
	t.Setenv("COLUMNS", "80")
	t.Setenv(envBackend, "")
	var page bytes.Buffer
	page.WriteString("# The command's help\n\n`make docs-reference` writes this page from the help of each command. " +
		"[The command](command.md) is the introduction.\n")
	commands := []string{""}
	for _, node := range newParser(&cli{}, io.Discard, io.Discard, nil).Model.Children {
		commands = append(commands, commandPath(node))
		for _, below := range node.Children {
			commands = append(commands, commandPath(below))
		}
	}
	if len(commands) != len(usageLines) {
		t.Errorf("the commands are %q, and %d of them have a usage line", commands, len(usageLines))
	}
	for _, command := range commands {
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
