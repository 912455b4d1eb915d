package redis

import (
	"fmt"
	"strconv"
	"testing"
)

// A list passes over many pages without a key, as in a large database of other programs.
func TestListPassesOverEmptyPages(t *testing.T) {
	t.Parallel()
	const empty = 10_001
	shard := fakeShard{values: map[string]string{}}
	addr := fakeStore(t, func(own string, words []string) string {
		if words[0] != "scan" {
			return shard.answer(own, words)
		}
		if cursor, _ := strconv.Atoi(words[1]); cursor < empty {
			next := strconv.Itoa(cursor + 1)
			return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n*0\r\n", len(next), next)
		}
		return "*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:n\r\n"
	})
	l := openAt(t, "redis://"+addr+"/?replicas=0", unprobed)
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range l.List(t.Context(), "") {
		if n++; err != nil || r.Name != "n" {
			t.Errorf("%s, %v", r.Name, err)
		}
	}
	if n != 1 {
		t.Errorf("%d locks are listed", n)
	}
}
