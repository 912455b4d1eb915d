package integration

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wallClock is the wall clock of one process, which a test can set. No other process is affected.
//
// A Go program does not ask libc for the time, so a preloaded library cannot move its clock. It
// calls __vdso_clock_gettime, code that the kernel maps into each process. The test starts the
// program under ptrace(2), which stops it before its first instruction, and writes other code
// there. The new code makes the system call and, for CLOCK_REALTIME only, adds a number of
// seconds that is stored behind it. As on a real machine, setting the wall clock moves neither
// CLOCK_MONOTONIC nor CLOCK_BOOTTIME.
type wallClock struct {
	pid    int
	offset int64 // the address of the seconds in the process's memory
}

// movedClockCode is the code, for amd64. The clock is in edi, the address of the result in rsi.
var movedClockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov  eax, 228   clock_gettime
	0x0f, 0x05, //                   syscall
	0x85, 0xff, //                   test edi, edi   CLOCK_REALTIME is 0
	0x75, 0x0a, //                   jne  end
	0x48, 0x8b, 0x0d, 0x0e, 0x00, 0x00, 0x00, // mov rcx, [rip+14]  the offset
	0x48, 0x01, 0x0e, //             add  [rsi], rcx
	0xc3,                               // end: ret
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // padding to 28 bytes
	0x90, 0x90, 0x90, 0x90, // padding to 32 bytes, for alignment
	0, 0, 0, 0, 0, 0, 0, 0, // the offset
}

const offsetAt = 32

// startWithWallClock starts a program whose wall clock can be set.
func startWithWallClock(cmd *exec.Cmd) (*wallClock, error) {
	runtime.LockOSThread() // ptrace's requests must come from one thread
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return nil, errors.Join(err, fmt.Errorf("the process did not stop: %#x", status))
	}
	at, err := vdsoClock(pid)
	if err == nil {
		_, err = syscall.PtracePokeData(pid, uintptr(at), movedClockCode)
	}
	return &wallClock{pid, at + offsetAt}, errors.Join(err, syscall.PtraceDetach(pid))
}

// vdsoClock finds __vdso_clock_gettime in a process's memory.
func vdsoClock(pid int) (int64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, err
		}
		at, err := symbolIn(pid, from, to)
		return from + at, err
	}
	return 0, errors.New("the process has no vDSO")
}

func symbolIn(pid int, from, to int64) (int64, error) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		return 0, err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(movedClockCode)) {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no __vdso_clock_gettime that is large enough to replace")
}

// set moves the process's wall clock by the given offset, in whole seconds, relative to the
// machine's.
func (c *wallClock) set(tb testing.TB, off time.Duration) {
	tb.Helper()
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_WRONLY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer memory.Close()
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(off/time.Second))
	if _, err := memory.WriteAt(seconds, c.offset); err != nil {
		tb.Fatal(err)
	}
}
