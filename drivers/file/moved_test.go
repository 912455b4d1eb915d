package file

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A holder whose folder was moved away is certain of its loss at the next renewal after another has taken the lock in the
// folder that has its place now.
func TestMovedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	first, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close(t.Context())
	lease := mustAcquire(t, first, request("first"))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Skip("an open file keeps the folder in its place: ", err) // Windows
	}
	if _, err := first.Renew(t.Context(), lease); err == nil {
		t.Error("renewed in a folder that is not there")
	}
	second, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(t.Context())
	if got := mustAcquire(t, second, request("second")); got.Token <= lease.Token {
		t.Errorf("token %d after %d", got.Token, lease.Token)
	}
	if _, err := first.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew: %v, want ErrLost", err)
	}
}
