package holdfastcontainers

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// detached keeps Ctrl-C from ending the keeper with the tests.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// lasting returns a copy of the program in dir: "go test" removes the original, which Windows
// refuses while it runs.
func lasting(program, dir string) (copied string, err error) {
	from, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	copied = filepath.Join(dir, "keeper.exe")
	to, err := os.Create(copied)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		return "", err
	}
	return copied, to.Close()
}
