package azuritetest

import (
	"errors"
	"os"
)

var errSignal = errors.New("Windows has no such signal")

func interrupt(*os.Process) error { return errSignal }
func pause(*os.Process) error     { return errSignal }
func resume(*os.Process) error    { return errSignal }
