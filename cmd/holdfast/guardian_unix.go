//go:build unix

package main

import (
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
)

// guardianName is the name under which the program starts itself as a guardian. It
// does not contain "holdfast", so that pkill or killall does not hit both.
const guardianName = "lock-guardian"

const (
	// orderTimeout bounds the writing of an order.
	orderTimeout = 10 * time.Millisecond
	// readyTimeout bounds the wait for a guardian that has been started.
	readyTimeout = 2 * time.Second
	// ready is what a guardian reports first: from now on it hears every signal.
	ready = 0
	// killing is what it reports before it kills; the numbers between are signals.
	killing = 255
)

// mostSignals is more than any signal's number.
const mostSignals = 65

// guardian is a process beside the command that kills the command's process group
// when holdfast cannot: when holdfast has died, and when it is stopped, or stuck, until
// the lease is nearly over.
//
// It reads orders from a pipe. A later order replaces an earlier one, and the guardian
// kills only when the pipe is empty: one that was itself stopped for a while first reads
// what came meanwhile. The end of the pipe means that holdfast has died: the group is
// killed at once. Orders stay in the pipe when their writer dies, so nothing is missed
// while the guardian starts.
//
// On Linux the guardian is a member of the group. The group's number cannot be reused
// before holdfast has reaped the guardian, or while the guardian lives: no signal
// reaches a stranger.
//
// It ignores the signals that it may ignore. Those that holdfast passes on it reports
// through a second pipe: what reaches one member of the group has reached the command, too.
type guardian struct {
	process *os.Process
	orders  *os.File
	heard   chan os.Signal // the signals that it was sent; closed when it has ended
	killed  bool           // it has killed the group; readable once heard is closed
}

// order has the guardian kill a process group at a moment on bootClock. In the pipe it has
// a fixed size, so that each is written and read as a whole.
type order struct{ Group, At int64 }

// startGuardian starts a guardian and waits until it is ready, so that it hears every signal
// that is sent to the command. It does nothing before the first order. One that was ended by a
// signal before it could ignore it is replaced.
func startGuardian() (g *guardian, err error) {
	for range 3 {
		if g, err = tryGuardian(); err == nil {
			return g, nil
		}
	}
	return nil, err
}

func tryGuardian() (*guardian, error) {
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
	process, err := execGuardian(orders, reports)
	if err != nil {
		_, _ = toGuardian.Close(), fromGuardian.Close()
		return nil, err
	}
	g := &guardian{process: process, orders: toGuardian, heard: make(chan os.Signal, 16)}
	_ = fromGuardian.SetReadDeadline(time.Now().Add(readyTimeout))
	_, err = fromGuardian.Read(make([]byte, 1))
	_ = fromGuardian.SetReadDeadline(time.Time{})
	go g.listen(fromGuardian)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // a slow one is better than none
		g.dismiss()
		return nil, fmt.Errorf("it has ended at once: %w", err)
	}
	return g, nil
}

func execGuardian(orders, reports *os.File) (*os.Process, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	return os.StartProcess(path, []string{guardianName}, &os.ProcAttr{
		Files: []*os.File{null, null, null, orders, reports},
		Env:   append(os.Environ(), "GOMAXPROCS=1"),
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // what the terminal sends is not for it
	})
}

// listen hands over what the guardian reports, until it has ended. Nobody waits for
// more than a few.
func (g *guardian) listen(reports *os.File) {
	defer close(g.heard)
	defer func() { _ = reports.Close() }()
	number := make([]byte, 1)
	for {
		if n, err := reports.Read(number); n == 0 || err != nil {
			return
		}
		switch number[0] {
		case ready:
		case killing:
			g.killed = true
		default:
			select {
			case g.heard <- syscall.Signal(number[0]):
			default:
			}
		}
	}
}

// order has the group killed at a moment on bootClock, unless another order comes first.
// It never waits for a guardian that somebody has stopped.
func (g *guardian) order(group int, at time.Duration) error {
	if err := g.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
		return err
	}
	return binary.Write(g.orders, binary.NativeEndian, order{int64(group), int64(at)})
}

// pid is the guardian's; 0 if there is none.
func (g *guardian) pid() int {
	if g == nil {
		return 0
	}
	return g.process.Pid
}

// dismiss ends the guardian without any harm to the group, and waits for its end. It
// may be called again.
func (g *guardian) dismiss() {
	if g == nil || g.orders == nil {
		return
	}
	_ = g.process.Kill() // before the pipe is closed, or it would take holdfast for dead
	_, _ = g.process.Wait()
	_ = g.orders.Close()
	for range g.heard {
	}
	g.orders = nil
}

// isGuardian reports whether this process was started as a guardian.
func isGuardian() bool { return filepath.Base(os.Args[0]) == guardianName }

// guard is the guardian's whole life.
func guard() {
	const ordersFD, reportsFD = 3, 4
	_ = unix.SetNonblock(reportsFD, true) // a holdfast that is stopped reads nothing
	orders, reports := os.NewFile(ordersFD, "orders"), os.NewFile(reportsFD, "reports")
	passedOn := append(slices.Clone(endingSignals), otherSignals...)
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, passedOn...)
	for n := syscall.Signal(1); n < mostSignals; n++ {
		if !slices.Contains(passedOn, os.Signal(n)) {
			signal.Ignore(n)
		}
	}
	go func() {
		for sig := range caught {
			if number, ok := sig.(syscall.Signal); ok {
				_, _ = reports.Write([]byte{byte(number)})
			}
		}
	}()
	nameOwnProcess(guardianName)
	_, _ = reports.Write([]byte{ready})

	last := order{At: math.MaxInt64}
	for {
		left := time.Duration(last.At) - bootClock()
		switch waiting, err := readable(ordersFD, min(left, time.Second)); {
		case errors.Is(err, unix.EINTR):
		case waiting:
			var next order
			if err := binary.Read(orders, binary.NativeEndian, &next); err != nil {
				killGroup(int(last.Group)) // holdfast has died
				return
			}
			if last.Group == 0 && !joinGroup(int(next.Group)) {
				return // it has ended already
			}
			last = next
		case left <= 0:
			_ = reports.SetWriteDeadline(time.Now().Add(orderTimeout))
			_, _ = reports.Write([]byte{killing})
			killGroup(int(last.Group))
			return
		}
	}
}

// readable waits until something can be read, its end included, but no longer than limit.
// It does not count the time that the system is suspended.
func readable(fd int32, limit time.Duration) (bool, error) {
	limit = max(limit, 0)
	n, err := unix.Poll([]unix.PollFd{{Fd: fd, Events: unix.POLLIN}}, int(limit/time.Millisecond))
	if n == 0 && limit < time.Millisecond {
		time.Sleep(limit)
	}
	return n > 0, err
}

// killGroup kills a process group, the guardian too if it has joined it.
func killGroup(group int) {
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
