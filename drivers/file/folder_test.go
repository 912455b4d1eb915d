package file

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
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
		if err := mustNew(t, dir, WithLogger(logger)).Close(t.Context()); err != nil {
			t.Error(err)
		}
		text := log.String()
		if n == 0 && (!strings.Contains(text, "INFO") || !strings.Contains(text, "it was made") || !strings.Contains(text, "folder=")) ||
			n == 1 && text != "" {
			t.Errorf("opening %d logged %q", n, text)
		}
		if mode := must(os.Stat(dir)).Mode().Perm(); runtime.GOOS != "windows" && mode != 0o700 {
			t.Errorf("the new folder has mode %o, want 700", mode)
		}
	}
	l, err := driver.Open(t.Context(), "file:"+filepath.ToSlash(dir)+"/of-a-url")
	if err != nil || !exists(filepath.Join(dir, "of-a-url")) {
		t.Fatal("a URL makes no folder: ", err)
	}
	defer l.Close(t.Context())
	if _, err := New(""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("New without a folder: %v, want ErrInvalid", err)
	}
}
