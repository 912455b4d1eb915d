package manual

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Pages returns the manual pages by their file names. about is the text about the whole program: a summary, and what follows.
func Pages(root *kong.Node, about string) map[string][]byte {
	pages := map[string][]byte{}
	var add func(node *kong.Node)
	add = func(node *kong.Node) {
		if !node.Hidden {
			pages[manName(node)+".1"] = manPage(node, about)
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
	return strings.ReplaceAll(strings.TrimSpace("holdfast "+Path(node)), " ", "-")
}

func manPage(node *kong.Node, about string) []byte {
	var b bytes.Buffer
	name, summary, detail := manName(node), strings.TrimSuffix(node.Help, "."), node.Detail
	if node.Type == kong.ApplicationNode {
		summary, detail, _ = strings.Cut(about, ".\n")
		detail = strings.ReplaceAll(detail, "\n  ", "\n      ") // the lists are shown as they are
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" holdfast \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(strings.ToLower(summary[:1])+summary[1:]))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(Usage(node)))
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
