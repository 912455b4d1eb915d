package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown above the flags.
func (*completionCmd) Help() string {
	return `The script completes commands, flags, and the names of locks. The names come from the backend, if it answers within a second.

Examples:

    holdfast completion bash >/etc/bash_completion.d/holdfast
    holdfast completion zsh >"${fpath[1]}/_holdfast"
    holdfast completion fish >~/.config/fish/completions/holdfast.fish`
}

//go:embed completion
var completionScripts embed.FS

// Run prints the script.
func (c *completionCmd) Run(a *app) error {
	script, err := completionScripts.ReadFile("completion/holdfast." + c.Shell)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(script)
	return err
}

// completeArg is the first argument with which the scripts ask for completions. The words of the
// command line follow, up to the one that is being typed, without the program's name.
const completeArg = "__complete"

const (
	// completeTimeout bounds the reading of names: the user waits for it.
	completeTimeout = time.Second
	// maxCompletions is how many names a shell can usefully show.
	maxCompletions = 300
)

// completions are what a word can be. The first line of the answer to a script says what follows:
// values, or that the shell completes files or commands by itself.
type completions struct {
	kind   string // "values", "files" or "commands"
	values []completion
}

type completion struct{ value, help string }

func (c *completions) add(prefix, value, help string) {
	if strings.HasPrefix(value, prefix) {
		first, _, _ := strings.Cut(help, ". ")
		c.values = append(c.values, completion{value, strings.TrimSuffix(first, ".")})
	}
}

// complete writes what the last word can be, one value a line, each with a tab and its help.
func complete(w io.Writer, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	found := completionsOf(words, namesOf)
	fmt.Fprintln(w, found.kind)
	for _, c := range found.values {
		if !strings.ContainsFunc(c.value+c.help, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			fmt.Fprintf(w, "%s\t%s\n", c.value, c.help)
		}
	}
}

// completionsOf returns what the last word can be. names reads the names of locks from a backend.
func completionsOf(words []string, names func(backend, prefix string) []string) completions {
	node := newParser(&cli{}, io.Discard, io.Discard, func() {}).Model.Node
	last := words[len(words)-1]
	backend, position := "", 0
	var waits *kong.Flag // for its value
	for _, word := range words[:len(words)-1] {
		if waits != nil {
			if waits.Name == "backend" {
				backend = word
			}
			waits = nil
			continue
		}
		if word == "--" && node.Name == "run" {
			return completions{kind: "commands"}
		}
		if strings.HasPrefix(word, "-") && word != "-" {
			name, value, hasValue := strings.Cut(word, "=")
			if flag := flagOf(node, name); flag != nil && !flag.IsBool() {
				switch {
				case !hasValue:
					waits = flag
				case flag.Name == "backend":
					backend = value
				}
			}
			continue
		}
		if child := childOf(node, word); child != nil {
			node = child
		} else {
			position++
		}
	}
	found := completions{kind: "values"}
	locks := func(prefix string) []string { return names(backend, prefix) }
	name, value, hasValue := strings.Cut(last, "=")
	switch {
	case waits != nil:
		found.addValues(waits, "", last, locks)
	case hasValue && flagOf(node, name) != nil:
		found.addValues(flagOf(node, name), name+"=", value, locks)
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				found.add(last, "--"+flag.Name, flag.Help)
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden {
				found.add(last, child.Name, child.Help)
			}
		}
	case len(node.Positional) > 0:
		found.addPositional(node, position, last, locks)
	}
	return found
}

// addValues adds the values of a flag.
func (c *completions) addValues(flag *kong.Flag, before, typed string, locks func(prefix string) []string) {
	switch {
	case flag.Name == "backend":
		for _, d := range drivers() {
			for _, url := range beginnings(d) {
				c.add(before+typed, before+url, "")
			}
		}
	case flag.Name == "with":
		for _, name := range locks(typed) {
			c.add(before+typed, before+name, "")
		}
	case strings.Contains(flag.Tag.Type, "file"):
		c.kind = "files"
	}
}

// addPositional adds the values of an argument that is no flag.
func (c *completions) addPositional(node *kong.Node, position int, typed string, names func(prefix string) []string) {
	at := node.Positional[min(position, len(node.Positional)-1)]
	switch {
	case position >= len(node.Positional) && !at.IsCumulative():
	case node.Name == "help":
		for root := node.Parent; root != nil; root = nil {
			for _, child := range root.Children {
				if !child.Hidden {
					c.add(typed, child.Name, child.Help)
				}
			}
		}
	case at.Enum != "":
		for _, value := range at.EnumSlice() {
			c.add(typed, value, "")
		}
	case node.Name == "man":
		c.kind = "files"
	case at.Name == "command":
		c.kind = "commands"
	case at.Name == "name" || at.Name == "prefix":
		for _, name := range names(typed) {
			c.add(typed, name, "")
		}
	}
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

func childOf(node *kong.Node, name string) *kong.Node {
	if at := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name }); at >= 0 {
		return node.Children[at]
	}
	return nil
}

// namesOf reads names of locks. An error means that there are none to complete.
func namesOf(backend, prefix string) (names []string) {
	if backend == "" {
		backend = strings.TrimSpace(os.Getenv(envBackend)) // as app.setBackend does
	}
	backend, err := chooseBackend(backend, true) // only a user at a terminal completes
	if err != nil || isMemory(backend) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	done := make(chan []string, 1) // a driver that is slow to notice the end of ctx ends with the process
	go func() { done <- listNames(ctx, backend, prefix) }()
	select {
	case names = <-done:
	case <-ctx.Done():
	}
	return names
}

func listNames(ctx context.Context, backend, prefix string) (names []string) {
	client, err := (&app{backend: backend}).openToLook(ctx)
	if err != nil {
		return nil
	}
	for record, err := range client.List(ctx, prefix) {
		if err != nil && record.Name == "" || len(names) == maxCompletions {
			break
		}
		names = append(names, record.Name)
	}
	stop, cancel := context.WithTimeout(ctx, idleShutdownTimeout)
	defer cancel()
	_ = client.Shutdown(stop) // nothing was acquired
	return names
}
