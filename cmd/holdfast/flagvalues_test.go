package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// Arguments arrive byte for byte, also those that are not UTF-8; a lock's name must be UTF-8.
func TestArgumentsKeepTheirBytes(t *testing.T) {
	var flags cli
	args := []string{"run", "--owner", "b\xfd", "job", "--", "printf", "c\xfe", "\xff"}
	if _, err := newParser(&flags, io.Discard, io.Discard, func() {}).Parse(args); err != nil {
		t.Fatal(err)
	}
	if got := flags.Run; got.Owner != "b\xfd" || !slices.Equal(got.Command, []string{"printf", "c\xfe", "\xff"}) {
		t.Errorf("owner %q, command %q", got.Owner, got.Command)
	}
	for _, args := range [][]string{{"status", "a\xff"}, {"watch", "a\xff"}, {"run", "a\xff", "--", "true"}} {
		_, err := newParser(&cli{}, io.Discard, io.Discard, func() {}).Parse(args)
		if err == nil || !strings.Contains(err.Error(), `"a\xff"`) {
			t.Errorf("%q: %v, want an error that names the name", args, err)
		}
	}
}
