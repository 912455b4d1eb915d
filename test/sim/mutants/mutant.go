package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/test/sim/overlay"
)

// mutant is one small change within a function.
type mutant struct {
	ID     string // stands for the place and the change
	Source string // stands for the text of the function, too
	Kind   string // hand, time, or how it was generated
	File   string // below the root folder
	Func   string
	What   string
	from   int // of the bytes of the file that are replaced
	to     int
	text   string // that replaces them
	number int    // in the binaries, from 1
}

func (m *mutant) pkg() string { return path.Dir(m.File) }

// source is a file of the library.
type source struct {
	file   string // below the root folder
	text   string
	parsed *ast.File
}

func (s *source) offset(p token.Pos) int   { return int(p - s.parsed.FileStart) }
func (s *source) textOf(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }
func (s *source) inside(n ast.Node, i int) bool {
	return s.offset(n.Pos()) <= i && i < s.offset(n.End())
}

// load reads the files of the packages that are changed.
func load(root string) ([]*source, error) {
	var all []*source
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg.dir), "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			s := &source{file: path.Join(pkg.dir, filepath.Base(file)), text: string(text)}
			if s.parsed, err = parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// function returns the function that has a change in its body.
func (s *source) function(from, to int) *ast.FuncDecl {
	for _, d := range s.parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && s.inside(f.Body, from) && to <= s.offset(f.Body.Rbrace) {
			return f
		}
	}
	return nil
}

// mutant makes the mutant that replaces a part of the file, unless that is in no function.
func (s *source) mutant(kind, what string, from, to int, text string) *mutant {
	f := s.function(from, to)
	if f == nil {
		return nil
	}
	begin := s.offset(f.Pos())
	before, after := s.text[begin:from], s.text[to:s.offset(f.End())]
	nth := strings.Count(before, s.text[from:to]) // of several places with one text
	return &mutant{
		ID:     digest(8, kind, s.file, f.Name.Name, s.text[from:to], text, fmt.Sprint(nth)),
		Source: digest(8, before, text, after), Kind: kind, File: s.file, Func: f.Name.Name, What: what, from: from, to: to, text: text,
	}
}

func digest(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}

// all returns every mutant, ordered by ID: so that a part of them concerns all packages.
func all(root string) ([]*mutant, []*source, error) {
	sources, err := load(root)
	if err != nil {
		return nil, nil, err
	}
	var mutants []*mutant
	for i, c := range slices.Concat(byHand, byTime) {
		kind := "hand"
		if i >= len(byHand) {
			kind = "time"
		}
		i := slices.IndexFunc(sources, func(s *source) bool { return s.file == c.File })
		if i < 0 {
			return nil, nil, fmt.Errorf("there is no %s", c.File)
		}
		at, err := overlay.Find(c.File, sources[i].text, c.What, c.Old)
		if err != nil {
			return nil, nil, err
		}
		m := sources[i].mutant(kind, c.What, at, at+len(c.Old), c.New)
		if m == nil {
			return nil, nil, fmt.Errorf("%s: %q is not within a function", c.File, c.What)
		}
		mutants = append(mutants, m)
	}
	mutants = append(mutants, generate(sources, mutants)...)
	slices.SortFunc(mutants, func(a, b *mutant) int { return strings.Compare(a.ID, b.ID) })
	for i, m := range mutants {
		m.number = i + 1
		if i > 0 && mutants[i-1].ID == m.ID {
			return nil, nil, fmt.Errorf("two mutants are the same: %s: %q", m.File, m.What)
		}
	}
	return mutants, sources, nil
}

// schemata returns the changed files, which have every mutant: a function with mutants begins with a call of the one that the
// environment chooses, each of which is a copy of the function.
func schemata(sources []*source, mutants []*mutant) map[string]string {
	changed := map[string]string{}
	for _, s := range sources {
		var edits []edit // of the file
		copies := ""
		for _, d := range s.parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			named, receiver, args := s.nameAll(f)
			dispatch := ""
			for _, m := range mutants {
				if m.File != s.file || !s.inside(f.Body, m.from) {
					continue
				}
				name := fmt.Sprintf("%sMutant%d", f.Name.Name, m.number)
				call := receiver + name + typeArgs(f) + "(" + args + ")"
				if f.Type.Results == nil {
					call += "; return"
				} else {
					call = "return " + call
				}
				dispatch += fmt.Sprintf(" if isMutant(%d) { %s };", m.number, call)
				begin, end := s.offset(f.Name.Pos()), s.offset(f.Name.End())
				copied := append(slices.Clone(named), edit{begin, end, name}, edit{m.from, m.to, m.text})
				copies += "\n" + apply(s.text, s.offset(f.Pos()), s.offset(f.End()), copied) + "\n"
			}
			if dispatch != "" {
				brace := s.offset(f.Body.Lbrace) + 1
				edits = append(append(edits, named...), edit{brace, brace, dispatch})
			}
		}
		if copies == "" {
			continue
		}
		changed[s.file] = apply(s.text, 0, len(s.text), edits) + copies
		changed[path.Join(path.Dir(s.file), "zz_mutants.go")] = fmt.Sprintf(switchText, s.parsed.Name.Name)
	}
	return changed
}

// switchText is the file of each package that says which mutant is on. Without one it notes which functions with mutants are called.
const switchText = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	chosenMutant, _ = strconv.Atoi(os.Getenv("HOLDFAST_MUTANT"))
	mutantsReached  = os.Getenv("HOLDFAST_MUTANTS_REACHED")
	mutantsNoted    sync.Map
)

func isMutant(number int) bool {
	if mutantsReached != "" {
		if _, noted := mutantsNoted.LoadOrStore(number, true); !noted {
			if f, err := os.OpenFile(mutantsReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, number)
				f.Close()
			}
		}
	}
	return number == chosenMutant
}
`

// edit replaces a part of a text.
type edit struct {
	from, to int
	text     string
}

// apply returns the part of a text from one byte to another, with edits.
func apply(text string, from, to int, edits []edit) string {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out strings.Builder
	for _, e := range edits {
		out.WriteString(text[from:e.from] + e.text)
		from = e.to
	}
	out.WriteString(text[from:to])
	return out.String()
}

// nameAll returns the edits that give a function's receiver and parameters names, as far as they have none, what stands before the
// method of a call, and the arguments.
func (s *source) nameAll(f *ast.FuncDecl) (edits []edit, receiver, args string) {
	n := 0
	name := func(field *ast.Field) (names []string) {
		for _, id := range field.Names {
			if id.Name == "_" {
				n++
				names = append(names, fmt.Sprintf("arg%dOfMutant", n))
				edits = append(edits, edit{s.offset(id.Pos()), s.offset(id.End()), names[len(names)-1]})
			} else {
				names = append(names, id.Name)
			}
		}
		if len(field.Names) == 0 {
			n++
			names = []string{fmt.Sprintf("arg%dOfMutant", n)}
			edits = append(edits, edit{s.offset(field.Pos()), s.offset(field.Pos()), names[0] + " "})
		}
		return names
	}
	if f.Recv != nil {
		receiver = name(f.Recv.List[0])[0] + "."
	}
	var all []string
	for _, field := range f.Type.Params.List {
		all = append(all, name(field)...)
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			all[len(all)-1] += "..."
		}
	}
	return edits, receiver, strings.Join(all, ", ")
}

// typeArgs are those of a call of a generic function by itself.
func typeArgs(f *ast.FuncDecl) string {
	if f.Type.TypeParams == nil {
		return ""
	}
	var names []string
	for _, field := range f.Type.TypeParams.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return "[" + strings.Join(names, ", ") + "]"
}
