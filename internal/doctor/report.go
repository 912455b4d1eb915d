package doctor

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// The width of a report, and the columns of its levels and subjects.
const (
	width        = 80
	levelColumn  = 10
	detailColumn = levelColumn + 24
)

// marks tell the levels apart without colour.
var marks = map[driver.Level]string{
	driver.LevelOK: "ok", driver.LevelUnchecked: "?", driver.LevelDoubtful: "DOUBTFUL", driver.LevelWrong: "WRONG",
}

// WriteText writes the report for people: what is right first, then the rest, and a summary. With
// problemsOnly it leaves out what is right or was not checked.
func (r *Report) WriteText(w io.Writer, problemsOnly bool) error {
	var b strings.Builder
	counts := map[driver.Level]int{}
	for _, f := range r.Findings {
		counts[f.Level]++
		if problemsOnly && f.Level < driver.LevelDoubtful {
			continue
		}
		line := fmt.Sprintf("%-*s%-*s ", levelColumn, marks[f.Level], detailColumn-levelColumn-1, f.Subject)
		wrap(&b, line, detailColumn, printable(f.Detail))
		if f.Remedy != "" {
			wrap(&b, strings.Repeat(" ", levelColumn)+"-> ", levelColumn+3, printable(f.Remedy))
		}
		if f.Command != "" {
			// A command is not wrapped, so that it can be copied.
			b.WriteString(strings.Repeat(" ", levelColumn+3) + printable(f.Command) + "\n")
		}
	}
	fmt.Fprintf(&b, "%s: %d right, %d not checked, %d doubtful, %d wrong\n", r.Verdict(),
		counts[driver.LevelOK], counts[driver.LevelUnchecked], counts[driver.LevelDoubtful], counts[driver.LevelWrong])
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes text in lines of at most width, after a beginning, and indents the lines that follow.
func wrap(b *strings.Builder, begin string, indent int, text string) {
	b.WriteString(begin)
	column := len([]rune(begin))
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}

// printable makes text from a backend safe to show: it must not control the reader's terminal.
func printable(text string) string {
	var b strings.Builder
	for _, c := range text {
		switch {
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case unicode.IsSpace(c):
			b.WriteByte(' ')
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
	}
	return b.String()
}
