//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
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
)

// guardian is a process beside the command that kills the command's process group
// when holdfast cannot: when holdfast has died, and when it is stopped, or stuck, until
// the lease is nearly over.
//
// It reads orders from a pipe. An order is the group's number and the moment on
// bootClock when the group is killed. A later order replaces an earlier one. The end of
// the pipe means that holdfast has died: the group is killed at once. Orders stay
// in the pipe when their writer dies, so nothing is missed while the guardian starts.
//
// On Linux the guardian is a member of the group. The group's number cannot be reused
// before holdfast has reaped the guardian, or while the guardian lives: no signal
// reaches a stranger.
//
// It ignores the signals that it may ignore. Those that ask to end it reports through
// a second pipe: what reaches one member of the group has reached the command, too.
type guardian struct {
	process *os.Process
	orders  *os.File
	heard   chan os.Signal // the signals that it was sent; closed when it has ended
}

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
		if number[0] == ready {
			continue
		}
		select {
		case g.heard <- syscall.Signal(number[0]):
		default:
		}
	}
}

// order has the group killed at a moment on bootClock, unless another order comes first.
// It never waits for a guardian that somebody has stopped.
func (g *guardian) order(group int, at time.Duration) error {
	if err := g.orders.SetWriteDeadline(time.Now().Add(orderTimeout)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(g.orders, "%d %d\n", group, int64(at))
	return err
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
	orders, reports := os.NewFile(3, "orders"), os.NewFile(4, "reports")
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, endingSignals...)
	for n := syscall.Signal(1); n < 65; n++ {
		if !slices.Contains(endingSignals, os.Signal(n)) {
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

	type order struct {
		group int
		at    time.Duration
	}
	received := make(chan order)
	go func() {
		defer close(received)
		for lines := bufio.NewScanner(orders); lines.Scan(); {
			var o order
			if n, _ := fmt.Sscan(lines.Text(), &o.group, (*int64)(&o.at)); n == 2 {
				received <- o
			}
		}
	}()
	last, timer := order{}, time.NewTimer(time.Hour)
	for {
		select {
		case o, ok := <-received:
			if !ok {
				killGroup(last.group)
				return
			}
			if last.group == 0 && !joinGroup(o.group) {
				return // it has ended already
			}
			last = o
		case <-timer.C:
		}
		left := last.at - bootClock()
		if left <= 0 {
			killGroup(last.group)
			return
		}
		timer.Reset(min(left, time.Second)) // the timer does not count the time that the system is suspended
	}
}

// killGroup kills a process group, the guardian too if it has joined it.
func killGroup(group int) {
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}
