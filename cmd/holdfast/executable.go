package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// findExecutable finds the command's file. It is called before the lock is acquired, so
// that a mistyped command does not wait for the lock first.
func findExecutable(command string) (string, error) {
	path, err := exec.LookPath(command)
	var lookup *exec.Error // its text would repeat the command
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		return "", &exitError{codeNotFound, fmt.Errorf("%s: command not found", redact(strconv.Quote(command)))}
	}
	return "", &exitError{codeNotExecutable, fmt.Errorf("%s: %w", redact(strconv.Quote(command)), err)}
}
