package file

import (
	"errors"
	"os/exec"
)

// killed reports whether a process ended as one that is killed does: Windows
// tells no more than an exit code.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
