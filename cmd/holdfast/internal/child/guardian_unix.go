//go:build unix

package child

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
)

// GuardianName is the name under which the program starts itself as a guardian. It does
// not contain "holdfast", so that pkill or killall does not end both.
const GuardianName = "lock-guardian"

const (
	// orderTimeout bounds each of two attempts to write an order, and the writing of a report.
	orderTimeout = 10 * time.Millisecond
	// readyTimeout bounds the wait for a guardian that was started.
	readyTimeout = 2 * time.Second
	// reportReady is a guardian's first report: from now on it receives every signal.
	reportReady = 0
	// reportKilling is its report before it kills the group. The numbers in between are
	// signals.
	reportKilling = 255
	// reportKillingLate is the report if the order has been due for so long that the lease may have
	// expired: the guardian was stopped, too.
	reportKillingLate = 254
)

// signalLimit is greater than the number of any signal.
const signalLimit = 65

// guardian is a second process that kills the command's process group when holdfast
// cannot: when holdfast has been killed, and when it is stopped, or stuck, until the lease
// has nearly expired.
//
// The guardian reads orders from a pipe; a later order replaces an earlier one. It kills
// the group
//   - when the last order is due and the pipe is empty. A guardian that was itself stopped
//     for a while therefore reads the orders that came meanwhile before it acts.
//   - when it reads the end of the pipe, because holdfast has died. Orders stay in the pipe
//     when their writer dies, so a guardian that is still starting misses none. Then the locks
//     are released, too (see startReleaser).
//
// On Linux the guardian is a member of the group. The group's ID cannot be reused while the
// guardian lives, or before holdfast has reaped it, so no signal reaches a stranger.
//
// The guardian ignores the signals that a process may ignore. It reports those that
// holdfast forwards through a second pipe: a signal that one member of the group received
// was sent to the whole group, and so to the command.
type guardian struct {
	process *os.Process
	orders  *os.File
	release *os.File       // see Child.ReleaseAfterKill
	signals chan os.Signal // the signals that the guardian received; closed when it has ended
	killed  bool           // the guardian has killed the group; readable once signals is closed
	inTime  bool           // it did so before the lease expired; readable once ended is closed
	ended   chan struct{}  // closed when the guardian has ended
}

// order tells the guardian to kill a process group at a time on bootClock. From Late on the kill
// counts as late. Its size is fixed, so that an order is written to the pipe and read as a whole.
type order struct{ Group, At, Late int64 }

// startGuardian starts a guardian and waits until it is ready, so that it receives every
// signal that is sent to the command. The guardian does nothing before its first order. A
// guardian that a signal ended before it could ignore signals is replaced.
func startGuardian() (g *guardian, err error) {
	for range 3 {
		if g, err = startGuardianOnce(); err == nil {
			return g, nil
		}
	}
	return nil, err
}

func startGuardianOnce() (*guardian, error) {
	orders, toGuardian, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = orders.Close() }()
	fromGuardian, reports, err := os.Pipe()
	if err != nil {
		_ = toGuardian.Close()
		return nil, err
	}
	defer func() { _ = reports.Close() }()
	inputs, toReleaser, err := os.Pipe()
	if err != nil {
		_, _ = toGuardian.Close(), fromGuardian.Close()
		return nil, err
	}
	defer func() { _ = inputs.Close() }()
	process, err := execGuardian(orders, reports, inputs)
	if err != nil {
		_, _, _ = toGuardian.Close(), fromGuardian.Close(), toReleaser.Close()
		return nil, err
	}
	g := &guardian{process: process, orders: toGuardian, release: toReleaser, signals: make(chan os.Signal, 16), ended: make(chan struct{})}
	_ = fromGuardian.SetReadDeadline(time.Now().Add(readyTimeout))
	_, err = fromGuardian.Read(make([]byte, 1))
	_ = fromGuardian.SetReadDeadline(time.Time{})
	go g.readReports(fromGuardian)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // a slow guardian is better than none
		g.dismiss()
		return nil, fmt.Errorf("it ended at once: %w", err)
	}
	return g, nil
}

func execGuardian(pipes ...*os.File) (*os.Process, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	return ownChildren.start(path, []string{GuardianName}, &os.ProcAttr{
		Files: append([]*os.File{null, null, null}, pipes...),
		Env:   append(os.Environ(), "GOMAXPROCS=1"),
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // out of reach of the terminal's signals
	})
}

// readReports delivers the guardian's reports until the guardian has ended. Signals beyond
// the channel's capacity are dropped.
func (g *guardian) readReports(reports *os.File) {
	defer close(g.ended)
	defer close(g.signals)
	defer func() { _ = reports.Close() }()
	number := make([]byte, 1)
	for {
		if n, err := reports.Read(number); n == 0 || err != nil {
			return
		}
		switch number[0] {
		case reportReady:
		case reportKilling:
			g.killed, g.inTime = true, true
		case reportKillingLate:
			g.killed = true
		default:
			select {
			case g.signals <- syscall.Signal(number[0]):
			default:
			}
		}
	}
}

// order tells the guardian to kill the group at a time on bootClock, unless another order
// comes first. It does not wait for a guardian that is stopped.
func (g *guardian) order(group int, at, late time.Duration) error {
	return againIfLate(func() error {
		if err := g.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
			return err
		}
		return binary.Write(g.orders, binary.NativeEndian, order{int64(group), int64(at), int64(late)})
	})
}

// againIfLate repeats a write once if its time limit was over. This process may have been paused until
// then, and nothing was written.
func againIfLate(write func() error) error {
	err := write()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = write()
	}
	return err
}

// stoppedInTime reports whether the guardian has killed the group before the lease expired. A
// guardian that may still do so is waited for, but no longer than limit.
func (g *guardian) stoppedInTime(limit time.Duration) bool {
	if g == nil {
		return false
	}
	select {
	case <-g.ended:
		return g.inTime
	case <-time.After(limit):
		return false
	}
}

// pid returns the guardian's process ID, or 0 if there is no guardian.
func (g *guardian) pid() int {
	if g == nil {
		return 0
	}
	return g.process.Pid
}

// dismiss ends the guardian without harm to the group, and waits for its end. It may be
// called more than once.
func (g *guardian) dismiss() {
	if g == nil || g.orders == nil {
		return
	}
	_ = g.process.Kill() // before the pipe is closed: its end would mean that holdfast has died
	pid := g.process.Pid
	_, _ = g.process.Wait()
	ownChildren.reaped(pid)
	_, _ = g.orders.Close(), g.release.Close()
	for range g.signals {
	}
	g.orders = nil
}

// IsGuardian reports whether this process was started as a guardian.
func IsGuardian() bool { return filepath.Base(os.Args[0]) == GuardianName }

// RunGuardian is the main function of a guardian, and of the releaser that it starts, which calls release.
func RunGuardian(release func(ctx context.Context, data []byte)) {
	if isReleaser() {
		runReleaser(release)
		return
	}
	const ordersFD, reportsFD, inputFD = 3, 4, 5
	for fd := ordersFD; fd <= inputFD; fd++ {
		unix.CloseOnExec(fd) // the releaser has none of them
	}
	_ = unix.SetNonblock(reportsFD, true) // a stopped holdfast does not read
	orders, reports := os.NewFile(ordersFD, "orders"), os.NewFile(reportsFD, "reports")
	forwarded := append(slices.Clone(signals.Ending), signals.Other...)
	received := make(chan os.Signal, 16)
	signal.Notify(received, forwarded...)
	for n := syscall.Signal(1); n < signalLimit; n++ {
		if !slices.Contains(forwarded, os.Signal(n)) {
			signal.Ignore(n)
		}
	}
	go func() {
		for sig := range received {
			if number, ok := sig.(syscall.Signal); ok {
				_, _ = reports.Write([]byte{byte(number)})
			}
		}
	}()
	setProcessName(GuardianName)
	_, _ = reports.Write([]byte{reportReady})

	input := receiveInput(os.NewFile(inputFD, "input"))
	last := order{At: math.MaxInt64}
	for {
		// Promise 8: bootClock judges when an order is due. Setting the wall clock changes nothing.
		left := time.Duration(last.At) - bootClock()
		switch ready, err := waitReadable(ordersFD, min(left, time.Second)); {
		case errors.Is(err, unix.EINTR):
		case ready:
			var next order
			if err := binary.Read(orders, binary.NativeEndian, &next); err != nil {
				// Promise 2: holdfast has died and renews no more. Its command ends before the lease does.
				startReleaser(int(last.Group), time.Duration(last.At), input)
				killGroup(int(last.Group))
				return
			}
			if last.Group == 0 && !joinGroup(int(next.Group)) {
				return // the group has ended already
			}
			last = next
		case left <= 0:
			_ = reports.SetWriteDeadline(time.Now().Add(orderTimeout))
			report := byte(reportKilling)
			if bootClock() >= time.Duration(last.Late) {
				report = reportKillingLate
			}
			_, _ = reports.Write([]byte{report})
			killGroup(int(last.Group))
			return
		}
	}
}

// waitReadable waits until a read from fd would not block, but no longer than limit. It
// does not count the time that the system is suspended.
func waitReadable(fd int32, limit time.Duration) (bool, error) {
	limit = max(limit, 0)
	n, err := unix.Poll([]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}, int(limit/time.Millisecond))
	if n == 0 && limit < time.Millisecond {
		time.Sleep(limit)
	}
	return n > 0, err
}

// killGroup kills a process group. If the guardian has joined the group, that includes the
// guardian.
func killGroup(group int) {
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
