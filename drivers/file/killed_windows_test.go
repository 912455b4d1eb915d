package file

import (
	"errors"
	"os/exec"
)

// killed reports whether a process ended like one that was killed. Windows reports only an exit
// code.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}
