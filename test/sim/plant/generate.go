package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a generated fault: one small change of the library's code. All mutants are compiled into one
// program, and a variable of the environment chooses the one that is on. So a mutant costs no
// compilation.
type mutant struct {
	id   int
	name string // the same as long as the code of its function is
	file string // path from the library's root
	pkg  string // its folder

	start, end    int    // the code that it changes
	before, after string // what is added before and after it
}

// sampled is how many mutants are made of each package. It is a sample: every package has more places.
var sampled = []struct {
	pkg string
	n   int
}{
	{"internal/engine", 48}, {"internal/engine/waiter", 24}, {"internal/renewal", 24}, {"internal/election", 16}, {"internal/batchread", 6},
	{"internal/dispatch", 12}, {"internal/sightings", 8},
	{"leases", 20}, {"partitions", 16}, {"driver/lockstate", 18}, {"drivers/memory", 8}, {"drivers/file", 14}, {"drivers/mongo", 24},
	{"drivers/azblob", 14},
}

// The package that the changed code calls. The overlay adds it to the library.
const (
	faultPath   = "internal/fault"
	faultImport = `import mutant__ "github.com/holdfast-go/holdfast/internal/fault"`
	faultSource = `// Package fault switches planted faults.
package fault

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	on, _  = strconv.Atoi(os.Getenv("HOLDFAST_FAULT"))
	record = os.Getenv("HOLDFAST_FAULTS_REACHED")
	hits   [4096]atomic.Bool
)

// On reports whether a fault is on.
func On(n int) bool {
	if record != "" && !hits[n].Swap(true) {
		if f, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(strconv.Itoa(n) + "\n")
			_ = f.Close()
		}
	}
	return n == on
}
`
)

// generate makes the mutants of the library at root.
func generate(root string) ([]*mutant, error) {
	var all []*mutant
	for _, s := range sampled {
		found, err := mutantsOf(root, s.pkg)
		if err != nil {
			return nil, err
		}
		// The order is by a hash of the names, so that a change elsewhere leaves the sample as it is.
		slices.SortFunc(found, func(a, b *mutant) int {
			return cmp.Or(cmp.Compare(hash(a.name), hash(b.name)), cmp.Compare(a.name, b.name))
		})
		all = append(all, found[:min(len(found), s.n)]...)
	}
	for i, m := range all {
		m.id = i + 1
	}
	return all, nil
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

func mutantsOf(root, pkg string) (found []*mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]int{}
	for _, path := range paths {
		base := filepath.Base(path)
		if strings.HasSuffix(base, "_test.go") || strings.Contains(base, "_windows") || strings.Contains(base, "_other") ||
			strings.Contains(base, "_darwin") || base == "testkit.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, text, 0)
		if err != nil {
			return nil, err
		}
		v := &visitor{text: string(text), offset: func(p token.Pos) int { return set.Position(p).Offset }, file: pkg + "/" + base, pkg: pkg,
			names: names}
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && !boring[fn.Name.Name] {
				v.fn = fn.Name.Name
				ast.Inspect(fn.Body, v.visit)
			}
		}
		found = append(found, v.found...)
	}
	return found, nil
}

// boring are functions whose faults break no promise: what people read.
var boring = map[string]bool{"String": true, "Error": true, "GoString": true, "LogValue": true, "Format": true, "log": true,
	"describe": true, "Unwrap": true, "init": true}

// visitor collects the mutants of one file.
type visitor struct {
	text   string
	offset func(token.Pos) int
	file   string
	pkg    string
	fn     string
	names  map[string]int
	found  []*mutant
}

func (v *visitor) code(n ast.Node) string { return v.text[v.offset(n.Pos()):v.offset(n.End())] }

// add adds a mutant. before and after may have %d for its number.
func (v *visitor) add(n ast.Node, what, before, after string) {
	code := strings.Join(strings.Fields(v.code(n)), " ")
	if len(code) > 90 {
		code = code[:87] + "…"
	}
	name := fmt.Sprintf("%s, %s: %s: %s", v.file, v.fn, what, code)
	v.names[name]++
	if k := v.names[name]; k > 1 {
		name += fmt.Sprintf(" (%d)", k)
	}
	v.found = append(v.found, &mutant{name: name, file: v.file, pkg: v.pkg, start: v.offset(n.Pos()), end: v.offset(n.End()), before: before,
		after: after})
}

func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		v.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			v.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				if c, ok := c.(*ast.CaseClause); ok && len(c.List) == 1 {
					v.negate(c.List[0])
				}
			}
		}
	case *ast.BinaryExpr:
		v.binary(n)
	case *ast.BlockStmt:
		v.drop(n.List)
	case *ast.CaseClause:
		v.drop(n.Body)
	case *ast.CommClause:
		v.drop(n.Body)
	}
	return true
}

func (v *visitor) negate(cond ast.Expr) {
	v.add(cond, "the opposite of", "((", ") != mutant__.On(%d))")
}

func (v *visitor) binary(n *ast.BinaryExpr) {
	x, y := v.code(n.X), v.code(n.Y)
	if strings.Contains(x+y, "func(") || strings.Contains(x+y, "<-") {
		return
	}
	switch n.Op {
	case token.LSS, token.GTR:
		v.add(n, "also if equal", "(", " || mutant__.On(%d) && ("+x+") == ("+y+"))")
	case token.LEQ, token.GEQ:
		v.add(n, "not if equal", "(", " && !(mutant__.On(%d) && ("+x+") == ("+y+")))")
	case token.LAND:
		v.add(n, "one of both is enough", "(", " || mutant__.On(%d) && (("+x+") || ("+y+")))")
	case token.LOR:
		v.add(n, "only if both", "((", ") && (!mutant__.On(%d) || ("+x+") && ("+y+")))")
	}
}

// drop leaves out statements.
func (v *visitor) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		default:
			continue
		}
		code := v.code(s)
		if strings.Contains(code, "ock()") || strings.HasPrefix(code, "panic(") || strings.HasPrefix(code, "_") ||
			strings.Contains(code, "logger.") {
			continue
		}
		v.add(s, "left out", "if !mutant__.On(%d) { ", " }")
	}
}

// overlay returns the changed files of the library, by their paths, with all mutants.
func overlay(root string, mutants []*mutant) (map[string][]byte, error) {
	byFile := map[string][]*mutant{}
	for _, m := range mutants {
		byFile[m.file] = append(byFile[m.file], m)
	}
	files := map[string][]byte{filepath.Join(root, faultPath, "fault.go"): []byte(faultSource)}
	for file, list := range byFile {
		path := filepath.Join(root, filepath.FromSlash(file))
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[path] = plantAll(text, list)
	}
	return files, nil
}

// plantAll adds the mutants of one file. One may be within another.
func plantAll(text []byte, list []*mutant) []byte {
	type insertion struct {
		at    int
		after bool // it ends a piece of code, and comes before what begins there
		size  int
		text  string
	}
	var all []insertion
	for _, m := range list {
		size := m.end - m.start
		all = append(all, insertion{m.start, false, -size, number(m.before, m.id)}, insertion{m.end, true, size, number(m.after, m.id)})
	}
	slices.SortStableFunc(all, func(a, b insertion) int {
		later := func(i insertion) int {
			if i.after {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(later(a), later(b)), cmp.Compare(a.size, b.size))
	})
	var out bytes.Buffer
	done := 0
	for _, i := range all {
		out.Write(text[done:i.at])
		out.WriteString(i.text)
		done = i.at
	}
	out.Write(text[done:])
	code := out.Bytes()
	clause := bytes.Index(code, []byte("\npackage ")) + 1
	if bytes.HasPrefix(code, []byte("package ")) {
		clause = 0
	}
	line := clause + bytes.IndexByte(code[clause:], '\n')
	return slices.Concat(code[:line], []byte("\n"+faultImport), code[line:])
}

func number(text string, id int) string {
	return strings.ReplaceAll(text, "%d", fmt.Sprint(id))
}
