package env

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

// clockVariable is the environment variable that names the file with the offset.
const clockVariable = "HOLDFAST_CLOCK"

// clockShim returns the shim, compiled on first use.
var clockShim = sync.OnceValues(func() ([]byte, error) {
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

// clockOffset returns the contents of the offset file.
func clockOffset(d time.Duration) []byte {
	return binary.NativeEndian.AppendUint64(nil, uint64(d.Nanoseconds()))
}
