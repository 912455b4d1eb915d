package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// systemClock is CLOCK_BOOTTIME: the time since boot, suspend included (clock_gettime(2)).
// A time namespace adds an offset to it (time_namespaces(7)). systemClock subtracts the
// offset, so that the processes of all namespaces share one clock.
func systemClock() (clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return clock{}, fmt.Errorf("reading the boot's ID: %w", err)
	}
	machine, err := machineID()
	if err != nil {
		return clock{}, err
	}
	offset, err := clockOffset() // constant: no process with threads can change its time namespace
	if err != nil {
		return clock{}, err
	}
	now := func() (lockstate.Moment, error) {
		// Promise 8: nobody can set this clock, and it counts suspend.
		since, err := bootTime()
		return lockstate.Moment{Elapsed: since - offset, Wall: time.Now().UTC()}, err
	}
	return clock{now: now, boot: strings.TrimSpace(string(boot)), machine: machineDigest(machine)}, nil
}

func bootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// clockOffset returns what the time namespace of this process adds to CLOCK_BOOTTIME.
func clockOffset() (time.Duration, error) {
	content, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the kernel has no time namespaces
	}
	if err != nil {
		return 0, fmt.Errorf("reading the offsets of the time namespace: %w", err)
	}
	mine, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return 0, fmt.Errorf("reading the time namespace: %w", err)
	}
	childrens, err := os.Readlink("/proc/self/ns/time_for_children")
	if err != nil {
		return 0, fmt.Errorf("reading the time namespace: %w", err)
	}
	if mine != childrens { // the offsets are those of the children's namespace
		return 0, errors.New("the clock's offset is unknown, since this process is not in the time namespace of its children: start it by a " +
			"fork (unshare --fork)")
	}
	return parseOffset(string(content))
}

// parseOffset returns the offset in the line of the clock: name, seconds, nanoseconds.
func parseOffset(content string) (time.Duration, error) {
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "boottime" {
			continue
		}
		seconds, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the offsets of the time namespace: %w", err)
		}
		nanoseconds, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the offsets of the time namespace: %w", err)
		}
		return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), nil
	}
	return 0, fmt.Errorf("the offsets of the time namespace, %q, lack boottime", content)
}

// machineID returns an ID that survives a reboot (machine-id(5)), or else the host name.
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
