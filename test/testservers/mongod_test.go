package testservers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMongodFromEnvironment(t *testing.T) {
	t.Setenv(EnvMongod, "/does/not/exist")
	if _, err := Mongod.Path(t.Context()); err == nil || !strings.Contains(err.Error(), EnvMongod) {
		t.Errorf("got %v, want an error that names %s", err, EnvMongod)
	}
	t.Setenv(EnvMongod, "")
	t.Setenv(EnvVersion, "3.6")
	_, err := Mongod.Path(t.Context())
	if err == nil || !strings.Contains(err.Error(), EnvVersion) || !strings.Contains(err.Error(), "6.0.5") {
		t.Errorf("got %v, want an error that names %s and the known versions", err, EnvVersion)
	}
}

// The path is absolute, so that a server can be started in another folder.
func TestMongodFromRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("server", nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv(EnvMongod, "server")
	path, err := Mongod.Path(t.Context())
	if err != nil || !filepath.IsAbs(path) || filepath.Base(path) != "server" {
		t.Errorf("got %q, %v", path, err)
	}
}

func TestFetchFailureSaysWhatToDo(t *testing.T) {
	root := inModule(t) // with an empty cache
	t.Setenv(EnvMongod, "")
	t.Setenv(EnvVersion, "")
	t.Setenv("PATH", root) // neither mongod nor python3, node or npm
	if _, err := Mongod.Path(t.Context()); err == nil || !strings.Contains(err.Error(), "HOLDFAST_TEST_MONGODB_URI") {
		t.Errorf("mongod: got %v, want an error that says what to set", err)
	}
	if _, err := Azurite(t.Context()); err == nil || !strings.Contains(err.Error(), "HOLDFAST_TEST_AZBLOB_URL") {
		t.Errorf("Azurite: got %v, want an error that says what to set", err)
	}
}
