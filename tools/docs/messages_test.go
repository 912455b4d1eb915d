package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	quotedMessage  = regexp.MustCompile(`"([a-z][^"\n]+)"`)
	commandMessage = regexp.MustCompile("`([^`]*\"NAME\"[^`]*)`")
	formatVerb     = regexp.MustCompile(`%[a-z]`)
	codeSpan       = regexp.MustCompile("`[^`]*`")
)

// Each log message that the runbook quotes exists: those in double quotes in the library, those in
// code with "NAME" in the command.
func TestRunbookQuotesMessagesThatExist(t *testing.T) {
	library := literals(t, "internal/engine", "internal/renewal", "internal/election")
	command := literals(t, "cmd/holdfast", "cmd/holdfast/internal/*")
	inLibrary, inCommand := 0, 0
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/runbook/") {
			continue
		}
		for _, m := range commandMessage.FindAllStringSubmatch(text, -1) {
			inCommand++
			if !slices.ContainsFunc(command, func(format string) bool { return isMessage(format, m[1]) }) {
				t.Errorf("%s: the command has no message %s", page, m[1])
			}
		}
		for _, m := range quotedMessage.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			inLibrary++
			op, composed := strings.CutSuffix(m[1], " failed") // see failureLine of internal/engine
			if !slices.ContainsFunc(library, func(s string) bool { return strings.Contains(s, m[1]) || composed && s == op }) {
				t.Errorf("%s: the library has no message %q", page, m[1])
			}
		}
	}
	if inLibrary < 7 || inCommand < 4 {
		t.Errorf("only %d messages of the library and %d of the command were found", inLibrary, inCommand)
	}
}

// Whoever looks for a loss in a log finds the message of each kind of hold, and of each program.
func TestRunbookNamesEveryMessageOfALoss(t *testing.T) {
	page := pages(t)["docs/runbook/losses.md"]
	lost := regexp.MustCompile(`^(lease|leadership) lost$|^(lost|this process no longer leads) %q`)
	found := 0
	for _, s := range slices.Concat(literals(t, "internal/engine"), literals(t, "cmd/holdfast", "cmd/holdfast/internal/*")) {
		m := lost.FindString(s)
		if m == "" {
			continue
		}
		found++
		if !strings.Contains(page, strings.ReplaceAll(m, "%q", `"NAME"`)) {
			t.Errorf("docs/runbook/losses.md does not have the message %s", s)
		}
	}
	if found < 4 {
		t.Errorf("only %d messages were found", found)
	}
}

var prefixedByHand = regexp.MustCompile("(Errorf|errors\\.New)\\(\\s*[\"`]holdfast: |TrimPrefix\\([^\n]*\"holdfast: \"\\)")

// Errors get the prefix from driver.Errorf and the types of package driver alone: they put none into the text of another error, and
// nothing has to cut one out.
func TestErrorsGetTheirPrefixInOnePlace(t *testing.T) {
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		files++
		code, err := os.ReadFile(path)
		if found := prefixedByHand.Find(code); found != nil {
			t.Errorf("%s: %s: driver.Errorf makes an error and writes the prefix; driver.ErrorText is a text without it", path, found)
		}
		return err
	})
	if err != nil || files < 1000 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// isMessage reports whether a format may give a message, whose placeholders are in capital letters.
func isMessage(format, message string) bool {
	if len(formatVerb.ReplaceAllString(format, "")) < 8 {
		return false // would match nearly everything
	}
	return regexp.MustCompile("^" + formatVerb.ReplaceAllString(regexp.QuoteMeta(format), ".*") + "$").MatchString(message)
}

// literals returns the strings in the code of folders, without its tests.
func literals(t *testing.T, folders ...string) (all []string) {
	t.Helper()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no code in %s (%v)", folder, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						all = append(all, s)
					}
				}
				return true
			})
		}
	}
	return all
}
