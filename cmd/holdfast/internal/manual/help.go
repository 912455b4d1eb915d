// Package manual writes the help and the manual pages of the commands. Both come from the parser's model, which has what the commands
// declare: their help, arguments and flags, and how they are used, in the tag "usage".
package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// program is the name of the program.
const program = "holdfast"

// Print is the printer of the parser's help.
func Print(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil {
		node = ctx.Model.Node
	}
	fmt.Fprintln(ctx.Stdout, "Usage:", Usage(node))
	options.NoAppSummary = true
	return kong.DefaultHelpPrinter(options, ctx)
}

// Usage is the first line of a command's help.
func Usage(node *kong.Node) string {
	if node.Type != kong.CommandNode {
		return program + " COMMAND [flags]"
	}
	return program + " " + Path(node) + " " + node.Tag.Get("usage")
}

// Path returns the words of a command, such as "data get".
func Path(node *kong.Node) string {
	if node == nil || node.Type != kong.CommandNode {
		return ""
	}
	return strings.TrimSpace(Path(node.Parent) + " " + node.Name)
}
