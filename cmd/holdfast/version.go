package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	JSON bool `help:"Write one JSON object: version, commit, go, system. What is not known is null."`
}

type versionJSON struct {
	Version *string `json:"version"`
	Commit  *string `json:"commit"`
	Go      string  `json:"go"`
	System  string  `json:"system"`
}

// Run shows what the Go tool-chain recorded when it built the program.
func (v *versionCmd) Run(a *app) error {
	out := versionJSON{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		out.Version = known(info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				out.Commit = known(s.Value)
			}
		}
	}
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
