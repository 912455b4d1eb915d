package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	for text, want := range map[string]string{
		"                                 Apache License\n                           Version 2.0, January 2004\n":                 "Apache-2.0",
		"Permission is hereby granted, free of charge, to any\nperson obtaining a copy of this software":                          "MIT",
		"Redistributions in binary form must reproduce the above\ncopyright notice … Neither the name of Google Inc.":             "BSD-3-Clause",
		"Redistributions in binary form must reproduce the above copyright notice, this list":                                     "BSD-2-Clause",
		"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is hereby granted": "ISC",
		"GNU GENERAL PUBLIC LICENSE Version 3": "",
	} {
		if got := classify(text); got != want {
			t.Errorf("%.40q is %q, want %q", text, got, want)
		}
	}
}

// The modules of this repository are not others' software, whether folders replace them, as on a branch, or they have a version, as in
// the commit of a release. A module with a similar path is, and so is one that a folder replaces.
func TestOurModules(t *testing.T) {
	got, err := others([]byte(`{"Dir": "/go/src/fmt"}
		{"Dir": "/cmd", "Module": {"Path": "github.com/holdfast-go/holdfast/cmd/holdfast", "Dir": "/cmd", "Main": true}}
		{"Dir": "/repo", "Module": {"Path": "github.com/holdfast-go/holdfast", "Version": "v0.0.0", "Dir": "/repo", "Replace": {"Path": "../.."}}}
		{"Dir": "/mod/holdfast", "Module": {"Path": "github.com/holdfast-go/holdfast", "Version": "v0.1.0", "Dir": "/mod/holdfast"}}
		{"Dir": "/mod/nats", "Module": {"Path": "github.com/holdfast-go/holdfast/drivers/nats", "Version": "v0.1.0", "Dir": "/mod/nats"}}
		{"Dir": "/mod/other", "Module": {"Path": "github.com/holdfast-go/holdfaster", "Version": "v1.0.0", "Dir": "/mod/other"}}
		{"Dir": "/copy", "Module": {"Path": "example.com/replaced", "Version": "v1.0.0", "Dir": "/copy", "Replace": {"Path": "/copy"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range got {
		paths = append(paths, m.Path)
	}
	if want := []string{"github.com/holdfast-go/holdfaster", "example.com/replaced"}; !slices.Equal(paths, want) {
		t.Errorf("the modules of others are %q, want %q", paths, want)
	}
}

// A module without a licence, or with an unknown one, is an error that names it. Modules with the same
// text share it.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	add := func(name, text string) module {
		d := filepath.Join(dir, name)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(d, "LICENSE"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return module{Path: "example.com/" + name, Version: "v1.0.0", Dir: d}
	}
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy \r\n"
	page, err := render([]module{add("a", mit), add("b", mit)})
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if !strings.Contains(text, "| example.com/b | v1.0.0 | MIT |") || strings.Count(text, "Permission is hereby") != 1 ||
		!strings.Contains(text, "## example.com/a, example.com/b\n") || strings.Contains(text, "\r") {
		t.Errorf("the page is\n%.600s", text)
	}
	for name, text := range map[string]string{"none": "", "gpl": "GNU GENERAL PUBLIC LICENSE"} {
		if _, err := render([]module{add(name, text)}); err == nil || !strings.Contains(err.Error(), "example.com/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder on the way from a module to a package that is linked can have a licence of its own.
func TestParts(t *testing.T) {
	root := t.TempDir()
	pkg := filepath.Join(root, "internal", "copied", "pkg")
	if err := os.MkdirAll(pkg, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, filepath.Dir(pkg)} {
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := module{Path: "example.com/m", Version: "v1.0.0", Dir: root}
	got := parts(m, pkg)
	if len(got) != 1 || got[0].Path != "example.com/m/internal/copied" || got[0].Dir != filepath.Dir(pkg) || got[0].Version != m.Version {
		t.Errorf("got %+v", got)
	}
	if got := parts(m, root); len(got) != 0 {
		t.Errorf("the module itself: %+v", got)
	}
}
