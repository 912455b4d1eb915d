package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/manual"
)

type manCmd struct {
	Folder string `arg:"" help:"The folder; it is made if it is missing."`
}

// Help is shown above the flags.
func (*manCmd) Help() string {
	return `Writes a manual page for each command, for packages of holdfast: holdfast.1, holdfast-run.1 and so on.`
}

// Run writes the pages.
func (m *manCmd) Run(*app) error {
	if err := os.MkdirAll(m.Folder, 0o755); err != nil { //nolint:gosec // pages for everybody
		return exitcode.With(exitcode.Output, err)
	}
	root := newParser(&cli{}, io.Discard, io.Discard, func() {}).Model.Node
	for name, page := range manual.Pages(root, description("file:~/.local/state/holdfast/locks")) {
		if err := os.WriteFile(filepath.Join(m.Folder, name), page, 0o644); err != nil { //nolint:gosec // pages for everybody
			return exitcode.With(exitcode.Output, err)
		}
	}
	return nil
}
