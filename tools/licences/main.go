// Command licences writes .cache/release/THIRD_PARTY.md, which is part of a release and not of the repository: the
// modules that are linked into the command on any system, with their licences. The licences ask that their texts go with a
// program.
//
// A module whose licence it does not know is an error: a person decides whether it fits.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ours is the path of the root module. The paths of the others in this repository are below it.
const ours = "github.com/holdfast-go/holdfast"

// systems are those for which the command is released.
var systems = []string{"linux", "darwin", "windows"}

// kinds are the known licences, each with a phrase that no other has. The first that fits counts.
var kinds = []struct{ name, phrase string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-3-Clause", "names of its contributors may"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
}

// module is what "go list" says of a module.
type module struct {
	Path, Version, Dir string
}

func main() {
	dir := flag.String("C", "cmd/holdfast", "the folder of the command")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	modules, err := linked(dir)
	if err != nil {
		return err
	}
	page, err := render(modules)
	if err != nil {
		return err
	}
	const folder = ".cache/release"
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	return os.WriteFile(filepath.Join(folder, "THIRD_PARTY.md"), page, 0o644) //nolint:gosec // everybody may read it
}

// linked returns the modules with packages in the command, for all systems, in order of their paths.
func linked(dir string) ([]module, error) {
	var all []module
	for _, system := range systems {
		list := exec.Command("go", "list", "-tags=full", "-deps", "-json=Dir,Module", ".") //nolint:noctx // it ends by itself
		list.Dir = dir
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s for %s: %w", dir, system, err)
		}
		found, err := others(out)
		if err != nil {
			return nil, err
		}
		for _, m := range found {
			if !slices.ContainsFunc(all, func(other module) bool { return other.Path == m.Path }) {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// others returns the modules of packages that "go list" lists, with their parts, but neither the standard library nor the modules of
// this repository, which folders replace on a branch and which have a version in the commit of a release.
func others(list []byte) (all []module, err error) {
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var pkg struct {
			Dir    string
			Module *module
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		m := pkg.Module
		if m == nil || m.Path == ours || strings.HasPrefix(m.Path, ours+"/") {
			continue
		}
		all = append(append(all, parts(*m, pkg.Dir)...), *m)
	}
}

// parts returns the folders of a module, from a package's upwards, that have a licence of their own, such as copies of other
// modules.
func parts(m module, dir string) (all []module) {
	for ; strings.HasPrefix(dir, m.Dir+string(filepath.Separator)); dir = filepath.Dir(dir) {
		if _, _, err := licenceIn(dir); err == nil {
			all = append(all, module{Path: m.Path + filepath.ToSlash(strings.TrimPrefix(dir, m.Dir)), Version: m.Version, Dir: dir})
		}
	}
	return all
}

// licence is a text with the modules that have it.
type licence struct {
	kind, text string
	modules    []string
}

func render(modules []module) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString("# Software in the command\n\n" +
		"The program `holdfast` contains these modules, and Go's standard library, under the licences below. Holdfast's own is in\n" +
		"the file LICENSE. This page is made by `make -f tools/tools.mk licences`.\n\n" +
		"| module | version | licence |\n|---|---|---|\n")
	var texts []*licence
	byText := map[[sha256.Size]byte]*licence{}
	add := func(name, dir string) (kind string, err error) {
		text, notice, err := licenceIn(dir)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		kind = classify(text)
		if kind == "" {
			return "", fmt.Errorf("%s: its licence is not one of those that are known: look at it, and add it to tools/licences", name)
		}
		sum := sha256.Sum256([]byte(text + notice))
		if byText[sum] == nil {
			byText[sum] = &licence{kind: kind, text: join(text, notice)}
			texts = append(texts, byText[sum])
		}
		byText[sum].modules = append(byText[sum].modules, name)
		return kind, nil
	}
	for _, m := range modules {
		kind, err := add(m.Path, m.Dir)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&page, "| %s | %s | %s |\n", m.Path, m.Version, kind)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output() //nolint:noctx // it ends by itself
	if err != nil {
		return nil, err
	}
	if _, err := add("Go's standard library", strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}
	for _, l := range texts {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n````text\n%s\n````\n", strings.Join(l.modules, ", "), l.kind, l.text)
	}
	return page.Bytes(), nil
}

func join(text, notice string) string {
	if notice == "" {
		return text
	}
	return text + "\n\n" + notice
}

// licenceIn returns the licence in a folder, and the notice that belongs to it.
func licenceIn(dir string) (text, notice string, err error) {
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md", "License", "COPYING"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			text = clean(content)
			break
		}
	}
	if text == "" {
		return "", "", errors.New("it has no file LICENSE")
	}
	if content, err := os.ReadFile(filepath.Join(dir, "NOTICE")); err == nil {
		notice = clean(content)
	}
	return text, notice, nil
}

// clean removes what differs between systems and what a page need not have.
func clean(content []byte) string {
	lines := strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// classify returns the name of a licence, or nothing.
func classify(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	for _, k := range kinds {
		if strings.Contains(words, k.phrase) {
			return k.name
		}
	}
	return ""
}
