package file

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/locktest"
)

// The making of a folder is logged once, with its name: another folder is another set of locks.
func TestFolderThatIsMadeIsLogged(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "parent", "locks")
	for n := range 2 {
		logger, log := locktest.NewLog()
		l, err := New(dir, WithLogger(logger))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		text := log.String()
		if n == 0 && (!strings.Contains(text, "INFO") || !strings.Contains(text, "it was made") || !strings.Contains(text, "folder=")) ||
			n == 1 && text != "" {
			t.Errorf("opening %d logged %q", n, text)
		}
	}
}
