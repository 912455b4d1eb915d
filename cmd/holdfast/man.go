package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

type manCmd struct {
	Folder string `arg:"" help:"The folder; it is made if it is missing."`
}

// Help is shown above the flags.
func (*manCmd) Help() string {
	return `Writes a manual page for each command, for packages of holdfast: holdfast.1, holdfast-run.1 and so on.`
}

// Run writes the pages.
func (m *manCmd) Run(*app) error {
	if err := os.MkdirAll(m.Folder, 0o755); err != nil { //nolint:gosec // pages for everybody
		return exitcode.With(exitcode.Output, err)
	}
	for name, page := range manPages() {
		if err := os.WriteFile(filepath.Join(m.Folder, name), page, 0o644); err != nil { //nolint:gosec // pages for everybody
			return exitcode.With(exitcode.Output, err)
		}
	}
	return nil
}

// manPages returns the manual pages by their file names.
func manPages() map[string][]byte {
	root := newParser(&cli{}, io.Discard, io.Discard, func() {}).Model.Node
	pages := map[string][]byte{}
	var add func(node *kong.Node)
	add = func(node *kong.Node) {
		if !node.Hidden {
			pages[manName(node)+".1"] = manPage(node)
		}
		for _, child := range node.Children {
			add(child)
		}
	}
	add(root)
	return pages
}

// manName is the name of a command's page, such as holdfast-data-get.
func manName(node *kong.Node) string {
	return strings.ReplaceAll(strings.TrimSpace("holdfast "+commandPath(node)), " ", "-")
}

func manPage(node *kong.Node) []byte {
	var b bytes.Buffer
	name, summary, detail := manName(node), strings.TrimSuffix(node.Help, "."), node.Detail
	if node.Type == kong.ApplicationNode {
		summary, detail, _ = strings.Cut(description("file:~/.local/state/holdfast/locks"), ".\n")
		detail = strings.ReplaceAll(detail, "\n  ", "\n      ") // the lists are shown as they are
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" holdfast \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(strings.ToLower(summary[:1])+summary[1:]))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(usageLines[commandPath(node)]))
	if detail = strings.TrimSpace(detail); detail != "" {
		b.WriteString(".SH DESCRIPTION\n")
		roffText(&b, detail)
	}
	if len(node.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, arg := range node.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(strings.ToUpper(arg.Name)), roff(arg.Help))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			roffFlag(&b, flag)
		}
	}
	var also []string
	for _, child := range node.Children {
		if !child.Hidden {
			also = append(also, manName(child))
		}
	}
	if node.Type == kong.ApplicationNode {
		b.WriteString(".SH COMMANDS\n")
		for _, child := range node.Children {
			if !child.Hidden {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(child.Name), roff(child.Help))
			}
		}
	} else {
		also = append([]string{manName(node.Parent)}, also...)
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, page := range also {
		comma := " ,"
		if i == len(also)-1 {
			comma = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(page), comma)
	}
	return b.Bytes()
}

func roffFlag(b *bytes.Buffer, flag *kong.Flag) {
	label := `\fB\-\-` + roff(flag.Name) + `\fR`
	if flag.Short != 0 {
		label = `\fB\-` + string(flag.Short) + `\fR, ` + label
	}
	if !flag.IsBool() {
		label += `=\fI` + roff(flag.FormatPlaceHolder()) + `\fR`
	}
	fmt.Fprintf(b, ".TP\n%s\n%s\n", label, roff(flag.Help))
}

// roffText writes paragraphs. Indented lines are shown as they are.
func roffText(b *bytes.Buffer, text string) {
	plain, paragraph := true, false
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			paragraph = true
			continue
		}
		indented := strings.HasPrefix(line, "    ")
		switch {
		case indented && plain:
			b.WriteString(".PP\n.nf\n")
		case !indented && !plain:
			b.WriteString(".fi\n.PP\n")
		case paragraph && plain:
			b.WriteString(".PP\n")
		case paragraph:
			b.WriteString("\\&\n") // an empty line in an example
		}
		plain, paragraph = !indented, false
		b.WriteString(roff(line) + "\n")
	}
	if !plain {
		b.WriteString(".fi\n")
	}
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...").Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
