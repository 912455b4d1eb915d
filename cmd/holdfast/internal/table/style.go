package table

import (
	"cmp"
	"os"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/tty"
)

// style is how the table looks. No state is shown by a colour alone.
type style struct {
	title, heading, selected, alarm, faint lipgloss.Style
	states                                 map[string]lipgloss.Style
	more, up, down, full, empty            string // an omission, the directions of a sort, and a bar
	ascii                                  bool   // the terminal cannot be expected to show more
}

func newStyle() style {
	plain := lipgloss.NewStyle()
	s := style{title: plain.Bold(true), heading: plain.Underline(true), selected: plain.Reverse(true),
		alarm: plain.Bold(true).Reverse(true),
		faint: plain.Faint(true), states: map[string]lipgloss.Style{}, more: "~", up: "^", down: "v", full: "#", empty: "-"}
	if s.ascii = !showsUnicode(); !s.ascii {
		s.more, s.up, s.down, s.full, s.empty = "…", "▲", "▼", "█", "░"
	}
	if os.Getenv("NO_COLOR") == "" {
		s.states["held"] = plain.Foreground(lipgloss.Green)
		s.states["broken"] = plain.Foreground(lipgloss.Red)
		s.states["unknown"] = plain.Foreground(lipgloss.Yellow)
	}
	return s
}

// toASCII replaces what the terminal would show as other characters, and keeps the width.
func toASCII(text string) string {
	var out strings.Builder
	for text != "" {
		shown, width, n, _ := ansi.DecodeSequence(text, ansi.NormalState, nil) // a character with what belongs to it, or an escape sequence
		if strings.IndexFunc(shown, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
			out.WriteString(shown)
		} else {
			out.WriteString(strings.Repeat("?", width))
		}
		text = text[n:]
	}
	return out.String()
}

// showsUnicode reports whether the terminal can be expected to show more than ASCII.
func showsUnicode() bool {
	if term := os.Getenv("TERM"); term == "dumb" || term == "linux" {
		return false
	}
	locale := strings.ToLower(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	return tty.LocaleIsUTF8 || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}
