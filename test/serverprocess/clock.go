package serverprocess

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// ClockVariable is the environment variable that names the file with the offset of a clock.
const ClockVariable = "HOLDFAST_CLOCK"

// ClockShim returns the library that moves the clock of a program that loads it. It is compiled on first use.
var ClockShim = sync.OnceValues(func() (_ []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot compile the library that moves a server's clock: %w", err)
		}
	}()
	if runtime.GOOS != "linux" {
		return nil, errors.New("it supports only Linux")
	}
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	dir, err := os.MkdirTemp("", "holdfast-clock-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w %s", err, out)
	}
	return os.ReadFile(library)
})

// ClockOffset is what the file with the offset of a clock has.
func ClockOffset(d time.Duration) []byte {
	return binary.NativeEndian.AppendUint64(nil, uint64(d.Nanoseconds()))
}

// Clock is the wall clock of a server that is started with its Env. The clocks that count elapsed time stay as they are.
type Clock struct{ library, offset string }

// NewClock returns a clock that is right, with its files in dir.
func NewClock(dir string) (*Clock, error) {
	code, err := ClockShim()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "clock-"); err != nil {
		return nil, err
	}
	c := &Clock{filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")}
	return c, errors.Join(os.WriteFile(c.library, code, 0o600), os.WriteFile(c.offset, ClockOffset(0), 0o600))
}

// Env returns the variables for the server's environment: none for a nil Clock.
func (c *Clock) Env() []string {
	if c == nil {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.library, ClockVariable + "=" + c.offset}
}

// Set moves the clock to offset ahead of the machine's, also of a server that runs. The file is written in place, since the
// server has mapped it.
func (c *Clock) Set(offset time.Duration) error {
	file, err := os.OpenFile(c.offset, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(ClockOffset(offset))
	return errors.Join(err, file.Close())
}
