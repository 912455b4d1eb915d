package testservers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// npm is fetched where the system has Node.js without it: Debian's package npm requires 360 others. Later
// versions need a later Node.js than Debian's.
var npm = cached{"npm-10.9.4", "3 MB, from registry.npmjs.org", func(ctx context.Context, dir string) error {
	const sum = "OnUG836FwboQIbqtefDNlyR0gTHzIfwRfE3DuiNewBvnMnWEpB0VEXwBlFVgqpNzIgYo/MHh3d2Hel/pszapAA=="
	return fetchTarball(ctx, "https://registry.npmjs.org/npm/-/npm-10.9.4.tgz", sum, dir)
}}

// npmCommand returns the command that runs npm: the one on PATH, or else the one in the cache.
func npmCommand(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("npm"); err == nil {
		return []string{"npm"}, nil
	}
	dir, err := npm.ensure(ctx)
	return []string{"node", filepath.Join(dir, "bin", "npm-cli.js")}, err
}

// maxTarball limits what is read of a tarball, packed and unpacked.
const maxTarball = 100 << 20

// fetchTarball downloads the tarball of a package and unpacks it into a new folder. sum is the SHA-512 of
// the tarball in base64.
func fetchTarball(ctx context.Context, url, sum, dir string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxTarball))
	if err != nil {
		return fmt.Errorf("download %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("download %s: %s", url, resp.Status)
	}
	if got := sha512.Sum512(content); base64.StdEncoding.EncodeToString(got[:]) != sum {
		return fmt.Errorf("download %s: the checksum of what was received is wrong", url)
	}
	return unpack(content, dir)
}

// unpack writes the files of a package's tarball into a new folder, without the first part of their paths.
func unpack(tarball []byte, dir string) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return err
	}
	for files := tar.NewReader(io.LimitReader(unzipped, maxTarball)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the tarball has a file with the path %.100q", header.Name)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as any folder of the cache
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
}
