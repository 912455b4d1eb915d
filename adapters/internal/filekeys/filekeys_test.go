package filekeys

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestClean(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "/": "", ".": "", "..": "", "a": "a", "/a/": "a", "a//b/./c": "a/b/c", "a/../b": "b", "../../a": "a", "a/...": "a/...",
	} {
		if got, err := Clean(key); got != want || err != nil {
			t.Errorf("Clean(%q): %q, %v; want %q", key, got, err, want)
		}
	}
	for what, key := range map[string]string{"long": strings.Repeat("a", MaxKey+1), "not UTF-8": "a\xff", "NUL": "a\x00"} {
		if _, err := Clean(key); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, key := range []string{"", "/", "a/.."} {
		if _, err := CleanFile(key); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("CleanFile(%q): %v", key, err)
		}
	}
}

func TestList(t *testing.T) {
	files := []string{"a/b/c", "a/b.d", "a/b/e/f", "a/b-"}
	for _, test := range []struct {
		dir       string
		recursive bool
		want      string
	}{
		{"a", false, "a/b a/b- a/b.d"},
		{"a", true, "a/b a/b/c a/b/e a/b/e/f a/b- a/b.d"}, // a directory before what is in it
		{"", false, "a"},
		{"", true, "a a/b a/b/c a/b/e a/b/e/f a/b- a/b.d"},
	} {
		if got := List(test.dir, files, test.recursive); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("List(%q, %t): %q", test.dir, test.recursive, got)
		}
	}
}
