package main

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// packages are those that are changed, with how many mutants of each are generated.
var packages = []struct {
	dir       string
	generated int
}{
	{"internal/engine", 8}, {"internal/engine/waiter", 4}, {"internal/renewal", 4}, {"internal/election", 4}, {"leases", 4},
	{"partitions", 5}, {"driver/lockstate", 4}, {"driver/waitqueue", 3}, {"driver/cas", 5}, {"internal/timing", 0},
}

// seed chooses the generated mutants: others are as good.
const seed = "1"

// turns is the order in which kinds take turns, so that no kind outnumbers the others.
var turns = []string{"negate", "drop", "limit", "logic", "drop", "negate", "less", "await", "return"}

// generate chooses mutants of each package: as far as possible one of a function, and none where there is one already.
func generate(sources []*source, present []*mutant) (chosen []*mutant) {
	for p, pkg := range packages {
		candidates := map[string][]*mutant{}
		limits := constants(sources, pkg.dir)
		for _, s := range sources {
			if path.Dir(s.file) == pkg.dir {
				g := &generator{source: s, limits: limits}
				g.all()
				for _, m := range g.found {
					if slices.ContainsFunc(present, func(p *mutant) bool { return p.File == m.File && p.from < m.to && m.from < p.to }) {
						continue
					}
					candidates[m.Kind] = append(candidates[m.Kind], m)
				}
			}
		}
		for _, of := range candidates {
			slices.SortFunc(of, func(a, b *mutant) int { return strings.Compare(digest(16, seed, a.ID), digest(16, seed, b.ID)) })
		}
		taken, used := 0, map[string]int{}
		for most := 1; taken < pkg.generated && most < 4; most++ {
			for idle := 0; taken < pkg.generated && idle < len(turns); {
				for k := range turns {
					kind := turns[(k+3*p)%len(turns)]
					i := slices.IndexFunc(candidates[kind], func(m *mutant) bool { return used[m.File+m.Func] < most })
					if idle++; i < 0 || taken == pkg.generated {
						continue
					}
					m := candidates[kind][i]
					candidates[kind] = slices.Delete(candidates[kind], i, i+1)
					chosen = append(chosen, m)
					used[m.File+m.Func]++
					taken, idle = taken+1, 0
				}
			}
		}
	}
	return chosen
}

// constants lists the names of a package's constants that are numbers: true for durations.
func constants(sources []*source, dir string) map[string]bool {
	found := map[string]bool{}
	for _, s := range sources {
		for _, d := range s.parsed.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST || path.Dir(s.file) != dir {
				continue
			}
			for _, spec := range decl.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || v.Type != nil || len(v.Values) != 1 {
					continue
				}
				if text := s.textOf(v.Values[0]); number.MatchString(text) || strings.Contains(text, "time.") {
					found[v.Names[0].Name] = strings.Contains(text, "time.")
				}
			}
		}
	}
	return found
}

var (
	number = regexp.MustCompile(`^\d+$`)
	// skipped are functions for people, whose texts tests need not check.
	skipped = regexp.MustCompile(`^(String|GoString|Error|describe.*|log)$`)
	// vain are calls without which a test hangs at once, or nothing differs without a race.
	vain = regexp.MustCompile(`(Lock|Unlock|RLock|RUnlock)\(\)$|^panic\(|[lL]og(ger)?\.|^(cancel|stop)\(|= (map|make|&)`)
	// trivial are conditions without which everything panics.
	trivial = regexp.MustCompile(`^\w+ [!=]= nil$|^true$`)
	// awaits are calls that wait.
	awaits = regexp.MustCompile(`\.([wW]ait|[rR]est|[aA]wait|sleep)\w*\(`)
)

// generator finds what can be changed in a file.
type generator struct {
	*source
	limits map[string]bool
	found  []*mutant
}

func (g *generator) add(kind string, n ast.Node, text string) {
	from, to := g.offset(n.Pos()), g.offset(n.End())
	old := strings.Join(strings.Fields(g.text[from:to]), " ")
	if m := g.mutant(kind, kind+": "+old, from, to, text); m != nil {
		g.found = append(g.found, m)
	}
}

func (g *generator) all() {
	if strings.Contains(g.text, "//go:build") || path.Base(g.file) == "log.go" {
		return
	}
	for _, d := range g.parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || skipped.MatchString(f.Name.Name) {
			continue
		}
		if f.Type.Results == nil {
			g.returnEarly(f.Body.List)
		}
		ast.Inspect(f.Body, g.visit)
	}
}

func (g *generator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt: // its first statement is no place for another
		g.negate(n.Cond)
		g.visitAll(n.Cond, n.Body, n.Else)
		return false
	case *ast.SwitchStmt:
		for _, stmt := range n.Body.List {
			clause, _ := stmt.(*ast.CaseClause)
			for _, cond := range clause.List {
				if n.Tag == nil {
					g.negate(cond)
				}
			}
		}
		g.visitAll(n.Body)
		return false
	case *ast.CommClause:
		for _, stmt := range n.Body {
			g.visitAll(stmt)
		}
		return false
	case *ast.ForStmt: // a loop that does not end is found at once
		g.visitAll(n.Body)
		return false
	case *ast.IndexExpr, *ast.SliceExpr, *ast.GenDecl:
		return false
	case *ast.ExprStmt:
		text := g.textOf(n)
		_, receives := n.X.(*ast.UnaryExpr)
		switch {
		case receives, awaits.MatchString(text):
			g.add("await", n, "if false { "+text+" }")
		case !vain.MatchString(text):
			g.add("drop", n, "if false { "+text+" }")
		}
	case *ast.AssignStmt:
		if _, field := n.Lhs[0].(*ast.SelectorExpr); field && n.Tok != token.DEFINE && !vain.MatchString(g.textOf(n)) {
			g.add("drop", n, "if false { "+g.textOf(n)+" }")
		}
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "min" || id.Name == "max") {
			for _, arg := range n.Args {
				g.limit(arg)
			}
		}
	}
	return true
}

func (g *generator) visitAll(nodes ...ast.Node) {
	for _, n := range nodes {
		if n != nil {
			ast.Inspect(n, g.visit)
		}
	}
}

func (g *generator) negate(cond ast.Expr) {
	if !trivial.MatchString(g.textOf(cond)) {
		g.add("negate", cond, "!("+g.textOf(cond)+")")
	}
}

func (g *generator) binary(n *ast.BinaryExpr) {
	x, y := g.textOf(n.X), g.textOf(n.Y)
	switch n.Op {
	case token.LAND, token.LOR:
		other := map[token.Token]string{token.LAND: "||", token.LOR: "&&"}[n.Op]
		if !strings.Contains(x, "nil") { // it would panic
			g.add("logic", n, "("+x+") "+other+" ("+y+")")
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]
		g.add("less", n, x+" "+other+" "+y)
		g.limit(n.Y)
	case token.ADD, token.SUB, token.MUL, token.QUO, token.EQL:
		g.limit(n.Y)
	}
}

// limit moves a number by one, and a duration by a tenth.
func (g *generator) limit(n ast.Expr) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind == token.INT {
			if i, err := strconv.Atoi(n.Value); err == nil {
				g.add("limit", n, strconv.Itoa(i+1))
			}
		}
	case *ast.Ident:
		switch duration, known := g.limits[n.Name]; {
		case known && duration:
			g.add("limit", n, "("+n.Name+" * 9 / 10)")
		case known:
			g.add("limit", n, "("+n.Name+" + 1)")
		}
	case *ast.SelectorExpr:
		if text := g.textOf(n); text == "time.Second" || text == "time.Minute" || text == "time.Millisecond" {
			g.add("limit", n, "("+text+" * 11 / 10)")
		}
	}
}

// returnEarly leaves out the second half of a function without results, unless it would keep a mutex.
func (g *generator) returnEarly(body []ast.Stmt) {
	if len(body) < 3 {
		return
	}
	at := len(body) / 2
	held := 0
	for _, stmt := range body[:at] {
		switch text := g.textOf(stmt); {
		case strings.HasPrefix(text, "defer") && strings.Contains(text, "Unlock()"):
			held--
		case strings.HasSuffix(text, "Lock()") && !strings.HasSuffix(text, "Unlock()"):
			held++
		case strings.HasSuffix(text, "Unlock()"):
			held--
		}
	}
	if _, labeled := body[at].(*ast.LabeledStmt); held <= 0 && !labeled {
		g.add("return", body[at], "if true { return }; "+g.textOf(body[at]))
	}
}
