package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// tree is the file system of an image: the entry at each path. Paths do not begin with a slash.
type tree struct{ entries map[string]entry }

// entry is a file of this machine, a text, a link or a folder.
type entry struct {
	source string // the path of a file of this machine
	text   string
	link   string
	mode   os.FileMode
}

func newTree() *tree {
	t := &tree{entries: map[string]entry{}}
	t.dir("tmp", 0o777|os.ModeSticky)
	return t
}

func (t *tree) file(name, source string, mode os.FileMode) {
	t.entries[name] = entry{source: source, mode: mode}
}

func (t *tree) script(name, text string) { t.entries[name] = entry{text: text, mode: 0o755} }

func (t *tree) text(name, text string) { t.entries[name] = entry{text: text, mode: 0o644} }

func (t *tree) link(name, target string) { t.entries[name] = entry{link: target} }

func (t *tree) dir(name string, mode os.FileMode) { t.entries[name] = entry{mode: mode | os.ModeDir} }

// digest returns a hash of the configuration and all entries.
func (t *tree) digest(config []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, config)
	for _, name := range t.names() {
		e := t.entries[name]
		fmt.Fprintf(sum, "%q %q %q %v", name, e.text, e.link, e.mode)
		if e.source != "" {
			if err := copyFile(sum, e.source); err != nil {
				return "", err
			}
		}
		fmt.Fprintln(sum)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// write writes the tree as a tar archive.
func (t *tree) write(w io.Writer) error {
	archive := tar.NewWriter(w)
	done := map[string]bool{".": true}
	for _, name := range t.names() {
		if err := t.parents(archive, done, path.Dir(name)); err != nil {
			return err
		}
		if done[name] {
			continue
		}
		done[name] = true
		if err := t.entries[name].write(archive, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

// parents writes the folders down to dir that have not been written yet.
func (t *tree) parents(archive *tar.Writer, done map[string]bool, dir string) error {
	if done[dir] {
		return nil
	}
	if err := t.parents(archive, done, path.Dir(dir)); err != nil {
		return err
	}
	done[dir] = true
	e, ok := t.entries[dir]
	if !ok {
		e = entry{mode: 0o755 | os.ModeDir}
	}
	return e.write(archive, dir)
}

func (e entry) write(archive *tar.Writer, name string) error {
	header := &tar.Header{Name: name, Mode: int64(e.mode.Perm()), Typeflag: tar.TypeReg, Size: int64(len(e.text))}
	switch {
	case e.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		return archive.WriteHeader(header)
	case e.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		if e.mode&os.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		return archive.WriteHeader(header)
	case e.source == "":
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.WriteString(archive, e.text)
		return err
	}
	info, err := os.Stat(e.source)
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	return copyFile(archive, e.source)
}

func copyFile(w io.Writer, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(w, file)
	return err
}

func (t *tree) names() []string {
	names := make([]string, 0, len(t.entries))
	for name := range t.entries {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
