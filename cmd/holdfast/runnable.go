package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// runnable finds the command's file before the lock is taken.
func runnable(command string) (string, error) {
	path, err := exec.LookPath(command)
	var reason *exec.Error // it repeats the command
	if errors.As(err, &reason) {
		err = reason.Err
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		return "", &exitError{codeNotFound, fmt.Errorf("%s: command not found", withoutSecret(strconv.Quote(command)))}
	}
	return "", &exitError{codeNotRunnable, fmt.Errorf("%s: %w", withoutSecret(strconv.Quote(command)), err)}
}
