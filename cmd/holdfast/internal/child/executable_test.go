//go:build unix

package child

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// A command that the system cannot start is refused before the lock is acquired, with the cause: "no such file or directory" is
// said of a file that exists, too, if its interpreter does not.
func TestCommandThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	formats := systemWithFormats(t)
	for name, test := range map[string]struct {
		text string
		code int
		want string
	}{
		"no interpreter":     {"#!/nowhere/bash -e\necho\n", exitcode.NotFound, `its interpreter "/nowhere/bash" was not found`},
		"with a space":       {"#! \t/nowhere/bash\necho\n", exitcode.NotFound, `its interpreter "/nowhere/bash" was not found`},
		"line endings":       {"#!/bin/sh\r\necho\r\n", exitcode.NotFound, `its first line ends with CR LF`},
		"no first line":      {"echo\n", exitcode.NotExecutable, `it has no "#!" line`},
		"empty":              {"", exitcode.NotExecutable, `it is empty`},
		"one line only":      {"#!/bin/sh", 0, ""},
		"a script":           {"#!/bin/sh -e\r\necho\n", 0, ""},
		"an unknown program": {"\x00asm\x01\x00\x00\x00", 0, ""}, // the system may know it
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(test.text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		found, err := FindExecutable(path)
		switch {
		case test.code == 0 && (err != nil || found != path):
			t.Errorf("%s: %q, %v", name, found, err)
		case test.code != 0 && (err == nil || exitcode.Of(err) != test.code || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: code %d, %v; want code %d, %s", name, exitcode.Of(err), err, test.code, test.want)
		}
	}
	if _, err := FindExecutable("sh"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(formats, "WSLInterop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"no first line", "empty"} { // the system may know what runs them
		if _, err := FindExecutable(filepath.Join(dir, name)); err != nil {
			t.Errorf("where the system was taught a format: %v", err)
		}
	}
}

// A command that PATH finds in a relative folder is run, as by sh, env and flock: PATH=node_modules/.bin:$PATH is usual in CI.
func TestCommandInRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("node_modules/.bin", 0o700); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\nexit 7\n"
	for path, text := range map[string]string{"node_modules/.bin/tool": script, "here": script, "bad": "echo\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", "node_modules/.bin:."+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, command := range []string{"tool", "here"} {
		path, err := FindExecutable(command)
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		c, unguarded, err := Start(path, []string{command}, os.Environ(), mayStart)
		if err != nil || unguarded != nil {
			t.Fatal(path, err, unguarded)
		}
		code, ended := 0, false
		locktest.Eventually(t, "the command ends", func() bool { code, ended = c.poll(); return ended })
		if c.Close(); code != 7 {
			t.Errorf("%s: exit code %d", path, code)
		}
	}
	if _, err := FindExecutable("bad"); exitcode.Of(err) != exitcode.NotExecutable || !strings.Contains(err.Error(), `no "#!" line`) {
		t.Errorf("%v", err)
	}
}

// systemWithFormats makes the formats that the system was taught those of a folder, which it returns: at first none.
func systemWithFormats(t *testing.T) string {
	t.Helper()
	dir, own := t.TempDir(), binfmtMisc
	binfmtMisc = dir
	t.Cleanup(func() { binfmtMisc = own })
	for _, name := range []string{"register", "status"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A program of another C library names a loader that is not installed.
func TestCommandWithoutItsLoader(t *testing.T) {
	text, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	loader := loaderOf("/bin/sh")
	if loader == "" {
		if _, err := elf.Open("/bin/sh"); err == nil {
			t.Skip("/bin/sh is linked statically")
		}
		t.Skip("the programs of this system are no ELF files")
	}
	path := filepath.Join(t.TempDir(), "program")
	missing := "/nowhere" + strings.Repeat("x", len(loader)-len("/nowhere"))
	program := []byte(strings.Replace(string(text), loader, missing, 1))
	write := func() {
		t.Helper()
		if err := os.WriteFile(path, program, 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	write()
	if _, err := FindExecutable(path); exitcode.Of(err) != exitcode.NotFound || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v", err)
	}
	// One for another machine may have an emulator, which finds the loader elsewhere.
	const machine = 18 // where the header has it, in two bytes
	program[machine], program[machine+1] = byte(elf.EM_S390), 0
	write()
	if found, err := FindExecutable(path); err != nil || found != path {
		t.Errorf("for another machine: %q, %v", found, err)
	}
}
