package child

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// FindExecutable finds the command's file. It is called before the lock is acquired, so that a mistyped command, or one that cannot be
// started, does not wait for the lock first. Its errors carry an exit code and do not name the command, which may hold a secret.
func FindExecutable(command string) (string, error) {
	path, err := exec.LookPath(command)
	if errors.Is(err, exec.ErrDot) && runtime.GOOS != "windows" { // PATH names the folder, which Windows also searches without that
		path, err = "."+string(os.PathSeparator)+path, nil
	}
	var lookup *exec.Error // its text would repeat the command
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	switch {
	case err == nil:
		if code, why := cannotStart(path); why != "" {
			return "", exitcode.With(code, errors.New(why))
		}
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		return "", exitcode.With(exitcode.NotFound, errors.New("command not found"))
	}
	return "", exitcode.With(exitcode.NotExecutable, err)
}

// firstLineLimit is more than a system reads of a script's first line.
const firstLineLimit = 4096

// cannotStart returns why the system certainly cannot start a program that exists, with the exit code, or "". The system's own
// errors name no cause: "no such file or directory" for a missing interpreter, "exec format error" for a script without "#!".
func cannotStart(path string) (code int, why string) {
	if runtime.GOOS == "windows" {
		return 0, ""
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, "" // a program may be executable and not readable
	}
	defer func() { _ = file.Close() }()
	head, err := io.ReadAll(io.LimitReader(file, firstLineLimit))
	if err != nil {
		return 0, ""
	}
	line, script := bytes.CutPrefix(head, []byte("#!"))
	if !script {
		return cannotStartProgram(path, head)
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	interpreter, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimLeft(string(line), " \t"), "\t", " "), " ")
	if !missing(interpreter) {
		return 0, ""
	}
	if strings.HasSuffix(interpreter, "\r") {
		return exitcode.NotFound, `its first line ends with CR LF, as on Windows: save the script with the line endings of Unix`
	}
	return exitcode.NotFound, fmt.Sprintf("its interpreter %s was not found (the first line of the script)", strconv.Quote(interpreter))
}

// cannotStartProgram is cannotStart for a file that does not begin with "#!".
func cannotStartProgram(path string, head []byte) (code int, why string) {
	loader := loaderOf(path)
	switch {
	case missing(loader):
		return exitcode.NotFound, fmt.Sprintf("its loader %s was not found: the program is for a system with another C library",
			strconv.Quote(loader))
	case loader != "" || bytes.IndexByte(head, 0) >= 0 || otherFormats():
		return 0, "" // not a text, or the system may know what runs it
	case len(head) == 0:
		return exitcode.NotExecutable, "it is empty"
	}
	return exitcode.NotExecutable, `it has no "#!" line, which names its interpreter: add one, such as #!/bin/sh, or run it as: sh FILE`
}

// missing reports whether there certainly is no such file.
func missing(path string) bool {
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// machines are the machines of ELF programs, by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// loaderOf returns the loader of an ELF program for this machine that is linked dynamically, or "". A program for another machine may
// have an emulator, which looks for the loader in a folder of its own.
func loaderOf(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if file.Machine != machines[runtime.GOARCH] {
		return ""
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz <= firstLineLimit {
			name := make([]byte, p.Filesz)
			if _, err := io.ReadFull(p.Open(), name); err == nil {
				return strings.TrimRight(string(name), "\x00")
			}
		}
	}
	return ""
}

// binfmtMisc lists the formats that the system was taught; another folder in tests.
var binfmtMisc = "/proc/sys/fs/binfmt_misc"

// otherFormats reports whether the system was taught other formats than its own, one of which may be a text.
func otherFormats() bool {
	entries, err := os.ReadDir(binfmtMisc)
	return err == nil && len(entries) > len([]string{"register", "status"})
}
