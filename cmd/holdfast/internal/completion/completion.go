// Package completion completes the words of a command line, for the scripts of shells.
package completion

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
)

//go:embed holdfast.*
var scripts embed.FS

// Script returns the script of a shell.
func Script(shell string) ([]byte, error) { return scripts.ReadFile("holdfast." + shell) }

// Arg is the first argument with which the scripts ask for completions. The words of the
// command line follow, up to the one that is being typed, without the program's name.
const Arg = "__complete"

// Completions are what a word can be. The first line of the answer to a script says what follows:
// values, or that the shell completes files or commands by itself.
type Completions struct {
	Kind   string // "values", "files" or "commands"
	Values []Value
}

// Value is what a word can be, and what that means.
type Value struct{ Text, Help string }

func (c *Completions) add(prefix, value, help string) {
	if strings.HasPrefix(value, prefix) {
		first, _, _ := strings.Cut(help, ". ")
		c.Values = append(c.Values, Value{value, strings.TrimSuffix(first, ".")})
	}
}

// Write writes completions for the scripts, one value a line, each with a tab and its help.
func (c Completions) Write(w io.Writer) {
	fmt.Fprintln(w, c.Kind)
	for _, v := range c.Values {
		if !strings.ContainsFunc(v.Text+v.Help, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			fmt.Fprintf(w, "%s\t%s\n", v.Text, v.Help)
		}
	}
}

// Of returns what the last word of a command line can be. node is the command without arguments, and names reads the names of
// locks from a backend.
func Of(node *kong.Node, words []string, names func(backend, prefix string) []string) Completions {
	if len(words) == 0 {
		words = []string{""}
	}
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
			return Completions{Kind: "commands"}
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
	found := Completions{Kind: "values"}
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
func (c *Completions) addValues(flag *kong.Flag, before, typed string, locks func(prefix string) []string) {
	switch {
	case flag.Name == "backend":
		for _, d := range backends.Drivers() {
			for _, url := range backends.Beginnings(d) {
				c.add(before+typed, before+url, "")
			}
		}
	case flag.Name == "with":
		for _, name := range locks(typed) {
			c.add(before+typed, before+name, "")
		}
	case strings.Contains(flag.Tag.Type, "file"):
		c.Kind = "files"
	}
}

// addPositional adds the values of an argument that is no flag.
func (c *Completions) addPositional(node *kong.Node, position int, typed string, names func(prefix string) []string) {
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
		c.Kind = "files"
	case at.Name == "command":
		c.Kind = "commands"
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
