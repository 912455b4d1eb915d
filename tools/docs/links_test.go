package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every link from one page to another, or to a file, has a target, and its heading exists.
func TestLinksResolve(t *testing.T) {
	texts := pages(t)
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			target, anchor, anchored := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, m[1])
			} else if anchored && !slices.Contains(anchors(texts[path]), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// anchors returns the anchors of a page's headings, as GitHub names them.
func anchors(text string) []string {
	var found []string
	for _, m := range heading.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case strings.ContainsRune("`~!@#$%^&*()+={}[]|\\:;\"'<>,.?/–—…", r):
				return -1
			}
			return r
		}, strings.ToLower(m[1])))
	}
	return found
}

// Every file that the page on internals, the table of promises or the guide for contributors
// names exists.
func TestNamedFilesExist(t *testing.T) {
	for _, page := range []string{"docs/internals.md", "doc.go", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllString(string(text), -1) {
			name := strings.TrimSuffix(m, "/")
			switch {
			case strings.Contains(name, "NN"):
				continue
			case strings.HasPrefix(name, "engine/"):
				name = "internal/" + name
			case strings.HasPrefix(name, "promise") && !strings.Contains(name, "/"):
				name = "test/promises/" + name
			}
			if found, _ := filepath.Glob(filepath.Join(root, name)); len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}

// The pages that list the others, or the folders of tests, have all of them.
func TestListsAreComplete(t *testing.T) {
	nav, start := read(t, "tools/docs/mkdocs.yml"), regexp.MustCompile(`(?m)^\| Which privileges\? .*$`).FindString(read(t, "docs/index.md"))
	rights := regexp.MustCompile(`(?m)^## (Privileges|(.* and )?[Rr]ights)$`)
	for page, text := range pages(t) {
		name, ours := strings.CutPrefix(page, "docs/")
		if ours && !strings.Contains(nav, ": "+name+"\n") {
			t.Errorf("mkdocs.yml lacks %s", name)
		}
		if ours && rights.MatchString(text) && !strings.Contains(start, "("+name+"#") {
			t.Errorf("docs/index.md does not link the rights of %s", name)
		}
	}
	folders, err := os.ReadDir(filepath.Join(root, "test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() && !strings.Contains(read(t, "CONTRIBUTING.md"), "`"+folder.Name()+"`") {
			t.Errorf("CONTRIBUTING.md does not explain test/%s", folder.Name())
		}
	}
}
