package testservers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tarball packs files with the given paths.
func tarball(t *testing.T, paths ...string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	for _, path := range paths {
		if err := files.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(path))}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// A tarball is unpacked if its checksum is right and no file lies outside of the folder.
func TestFetchTarball(t *testing.T) {
	good, outside := tarball(t, "package/bin/run.js", "package/README"), tarball(t, "package/../../outside")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write(good)
		case "/outside":
			_, _ = w.Write(outside)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	sum := func(content []byte) string {
		s := sha512.Sum512(content)
		return base64.StdEncoding.EncodeToString(s[:])
	}
	dir := filepath.Join(t.TempDir(), "fresh")
	if err := fetchTarball(t.Context(), server.URL+"/good", sum(good), dir); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "bin", "run.js")); err != nil || string(content) != "package/bin/run.js" {
		t.Errorf("unpacked %q, %v", content, err)
	}
	for path, want := range map[string]string{"/good": "checksum", "/outside": "the path", "/missing": "404"} {
		into := filepath.Join(t.TempDir(), "fresh")
		with := sum(outside)
		if err := fetchTarball(t.Context(), server.URL+path, with, into); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", path, err, want)
		}
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%s: something was unpacked", path)
		}
	}
}

// The npm on PATH is used, and otherwise the one in the cache.
func TestNpmCommand(t *testing.T) {
	root := inModule(t)
	cached := filepath.Join(root, ".cache", npm.name)
	if err := os.MkdirAll(cached, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", root)
	if command, err := npmCommand(t.Context()); err != nil ||
		!slices.Equal(command, []string{"node", filepath.Join(cached, "bin", "npm-cli.js")}) {
		t.Errorf("without npm on PATH: %q, %v", command, err)
	}
	if err := os.WriteFile(filepath.Join(root, "npm"), nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if command, err := npmCommand(t.Context()); err != nil || !slices.Equal(command, []string{"npm"}) {
		t.Errorf("with npm on PATH: %q, %v", command, err)
	}
}
