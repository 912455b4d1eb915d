package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	// inlineCommand matches a command in a page's text.
	inlineCommand = regexp.MustCompile("`((?:make|holdfast) [^`…]+)`")
	quoted        = regexp.MustCompile(`'[^']*'|"[^"]*"|\$\([^)]*\)`)
	comment       = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	separator     = regexp.MustCompile(`&&|\|\||[;|\n(){}]|&`)
	makeTarget    = regexp.MustCompile(`(?m)^([a-z][\w-]*(?: [a-z][\w-]*)*):`)
)

// keywords of the shell stand before a command or end one.
var keywords = []string{"do", "done", "else", "fi", "if", "then", "while"}

// external are the programs in the examples that are not of this repository.
var external = []string{"az", "cd", "cp", "curl", "docker", "docker-compose", "etcdctl", "export", "for", "git", "kill", "kubectl", "mkdir",
	"mongod", "mongosh", "node", "npm", "openssl", "pip", "python", "python3", "which"}

// placeholders stand for the programs of the reader.
var placeholders = []string{"./convert.sh", "./migrate", "./report.sh", "./worker"}

// Every command in an example exists: the program, its subcommand and flags, the target of make, the
// package that go runs.
func TestCommandsExist(t *testing.T) {
	everyday, tools := makeTargets(t, "Makefile"), makeTargets(t, "tools/tools.mk")
	checked := 0
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" || page == "docs/command-reference.md" {
			continue // earlier builds; the help itself
		}
		var commands []string
		for _, m := range shellBlock.FindAllStringSubmatch(text, -1) {
			script := quoted.ReplaceAllString(strings.ReplaceAll(m[1], "\\\n", " "), "QUOTED")
			commands = append(commands, separator.Split(comment.ReplaceAllString(script, ""), -1)...)
		}
		for _, m := range inlineCommand.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			commands = append(commands, separator.Split(quoted.ReplaceAllString(m[1], "QUOTED"), -1)...)
		}
		for _, command := range commands {
			words := strings.Fields(command)
			for len(words) > 0 && (strings.Contains(words[0], "=") || slices.Contains(keywords, words[0])) {
				words = words[1:] // the first may be a variable for this command
			}
			if len(words) == 0 {
				continue
			}
			checked++
			if problem := checkCommand(t, words, everyday, tools); problem != "" {
				t.Errorf("%s: %s: %s", page, strings.Join(words, " "), problem)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// makeTargets returns the targets of a makefile.
func makeTargets(t *testing.T, name string) (targets []string) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	return targets
}

// checkMake returns what is wrong with the arguments of make, or nothing.
func checkMake(args, everyday, tools []string) string {
	targets := everyday
	if len(args) > 1 && args[0] == "-f" && args[1] == "tools/tools.mk" {
		targets, args = tools, args[2:]
	}
	for _, target := range args {
		if !strings.Contains(target, "=") && !slices.Contains(targets, target) {
			return "there is no target " + target
		}
	}
	return ""
}

// The Makefile is short enough to be read; tools/tools.mk has what is needed seldom.
func TestMakefileIsShort(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if documented := regexp.MustCompile(`(?m)^[a-z0-9-]+:.*## `).FindAllString(string(makefile), -1); len(documented) > 20 {
		t.Errorf("make help lists %d targets; at most 20 are everyday commands", len(documented))
	}
}

// checkCommand returns what is wrong with a command, or nothing.
func checkCommand(t *testing.T, words, everyday, tools []string) string {
	t.Helper()
	exists := func(path string) bool { _, err := os.Stat(filepath.Join(root, path)); return err == nil }
	switch program := words[0]; {
	case program == "make":
		return checkMake(words[1:], everyday, tools)
	case program == "holdfast":
		return checkHoldfast(t, words[1:])
	case program == "go":
		dir, rest := "", words[1:]
		if len(rest) > 1 && rest[0] == "-C" {
			dir, rest = rest[1], rest[2:]
		}
		if len(rest) == 0 || !slices.Contains([]string{"build", "doc", "get", "install", "mod", "run", "test", "vet"}, rest[0]) {
			return "go has no such command"
		}
		if rest[0] != "run" && rest[0] != "install" {
			return ""
		}
		for i, word := range rest {
			switch {
			case strings.Contains(word, "@"):
				return "" // a version of a module, not this clone
			case strings.HasPrefix(word, "./") && !exists(filepath.Join(dir, word)) && !exists(filepath.Join("integration", word)):
				return "there is no package " + word
			case word == "." && dir == "cmd/holdfast" && rest[0] == "run":
				return checkHoldfast(t, rest[i+1:])
			}
		}
	case slices.Contains(external, program), slices.Contains(placeholders, program), exists(program):
	default:
		return "there is no such program"
	}
	return ""
}

// checkHoldfast checks a command line of holdfast against its help, of which docs/command-reference.md
// is a copy.
func checkHoldfast(t *testing.T, args []string) string {
	t.Helper()
	reference, err := os.ReadFile(filepath.Join(root, "docs", "command-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 || args[0] == "--help" {
		return ""
	}
	_, help, found := strings.Cut(string(reference), "\n## holdfast "+args[0]+"\n")
	if !found {
		return "holdfast has no command " + args[0]
	}
	help, _, _ = strings.Cut(help, "\n## ")
	for _, arg := range args[1:] {
		if arg == "--" {
			break
		}
		flag, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(flag, "-") && !regexp.MustCompile(`(?m)^\s+(?:-\w, )?(?:`+regexp.QuoteMeta(flag)+`)\b|^\s+`+regexp.QuoteMeta(flag)+
			`, `).MatchString(help) {
			return "holdfast " + args[0] + " has no flag " + flag
		}
	}
	return ""
}

// The site's navigation has every page of docs/.
func TestEveryPageIsInTheNavigation(t *testing.T) {
	config, err := os.ReadFile("mkdocs.yml")
	if err != nil {
		t.Fatal(err)
	}
	for page := range pages(t) {
		if name, found := strings.CutPrefix(page, "docs/"); found && !strings.Contains(string(config), ": "+name+"\n") {
			t.Errorf("%s is not in the nav of mkdocs.yml", page)
		}
	}
}
