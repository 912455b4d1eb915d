package file

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/lockstate"
)

// systemClock is CLOCK_BOOTTIME: the time since boot, suspend included, the same
// for all processes (clock_gettime(2)).
func systemClock() (clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return clock{}, fmt.Errorf("reading the boot's ID: %w", err)
	}
	machine, err := machineID()
	if err != nil {
		return clock{}, err
	}
	return clock{now: bootTime, boot: strings.TrimSpace(string(boot)), machine: machineDigest(machine)}, nil
}

func bootTime() (lockstate.Moment, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return lockstate.Moment{}, os.NewSyscallError("clock_gettime", err)
	}
	return lockstate.Moment{Elapsed: time.Duration(ts.Nano()), Wall: time.Now().UTC()}, nil
}

// machineID survives a reboot (machine-id(5)); without one, the host name must do.
func machineID() (string, error) {
	id, err := os.ReadFile("/etc/machine-id")
	if text := strings.TrimSpace(string(id)); err == nil && text != "" && text != "uninitialized" {
		return text, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("without /etc/machine-id: %w", err)
	}
	return "host " + host, nil
}
