package main

import (
	"testing"
)

func TestQuoteUnsafe(t *testing.T) {
	for in, want := range map[string]string{
		"web-3/411": "web-3/411",
		"grüße":     "grüße",
		"":          `""`,
		"a b":       `"a b"`,
		`"`:         `"\""`,
		"\x1b[2J":   `"\x1b[2J"`,
		"a\nb":      `"a\nb"`,
		"\xff":      `"\xff"`,
		"\u202eabc": `"\u202eabc"`,
	} {
		if got := quoteUnsafe(in); got != want {
			t.Errorf("quoteUnsafe(%q) = %s, want %s", in, got, want)
		}
	}
}
