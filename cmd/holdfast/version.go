package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
)

type versionCmd struct {
	JSON bool `help:"Write one JSON object: version, commit, go, system. An unknown value is null."`
}

// versionFlag is the flag --version.
type versionFlag bool

// BeforeReset is called by the parser before it parses the rest of the command line.
func (versionFlag) BeforeReset(parser *kong.Kong) error { //nolint:unparam // the parser wants this signature
	_ = (&versionCmd{}).Run(&app{stdout: parser.Stdout}) // the writer keeps the error for the parser's Exit
	parser.Exit(0)
	return nil
}

type versionJSON struct {
	Version *string `json:"version"`
	Commit  *string `json:"commit"`
	Go      string  `json:"go"`
	System  string  `json:"system"`
}

// build is what the Go toolchain recorded when it built the program.
func build() versionJSON {
	out := versionJSON{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		out.Version = format.NilIfZero(info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				out.Commit = format.NilIfZero(s.Value)
			}
		}
	}
	return out
}

// Run shows the version.
func (v *versionCmd) Run(a *app) error {
	out := build()
	if v.JSON {
		return writeJSON(a.stdout, out)
	}
	_, err := fmt.Fprintf(a.stdout, "holdfast %s (commit %s, %s, %s)\n", orUnknown(out.Version), orUnknown(out.Commit), out.Go, out.System)
	return err
}

func orUnknown(s *string) string {
	if s == nil {
		return "unknown"
	}
	return *s
}
