//go:build unix

package child

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// If holdfast is killed, its guardian kills the command's group, and on Linux itself with it. Just before, it starts a releaser: a process
// that waits for the command's end and then releases the locks. Why that is sound:
//
//   - The command has ended when the system says that its group is gone, and no process has the command's marks in its environment. What
//     has left the group, as by setsid or a nested holdfast, survives the kill. If it has cleared its environment or become another user,
//     it is not seen, as after a normal end of the command; nor is a program of the same user whose environment the system shows to
//     nobody (file capabilities). Where a process cannot read even its own, nothing is released.
//   - The guardian is in the group, so that the releaser cannot see the group's end before the kill. The releaser sends no signal, so it
//     does no harm if the group's ID is a stranger's by then.
//   - A release that is late, or of a lease that was lost, frees nobody else's lock: it names the lease ID.
//   - Nobody can read what could not be read before. Holdfast writes the releaser's input into a pipe of the guardian, which reads it at
//     once and keeps it in memory. The guardian writes it into a pipe of the releaser. It is never among arguments or in an environment,
//     and the command has neither pipe.
//   - The kill waits for the releaser's start, but not beyond the time at which it would be due without holdfast's death.
//
// Whatever fails on this way leaves the locks held until their leases end.
const (
	// startLimit bounds how long the kill of the group waits for the start of the releaser, which takes some milliseconds unless the
	// machine is very busy.
	startLimit = 5 * time.Second
	// writeLimit bounds the writing of the input, which waits only if it is longer than a pipe and its reader is stopped.
	writeLimit = time.Second
	// endLimit is how long the releaser waits for the command's end. What outlives the kill may be at work: a process that has become
	// another user, or has left the group. What does not is reaped by process 1, which can take its time.
	endLimit = 10 * time.Second
	// markInterval is how often the releaser looks for processes that have left the group.
	markInterval = 200 * time.Millisecond
	// releaseLimit bounds the release.
	releaseLimit = 10 * time.Second
	// releaserArg tells a releaser from a guardian.
	releaserArg = "release"
)

// releaserInput is what the guardian, and then the releaser, gets. It has secrets, and is never printed or logged.
type releaserInput struct {
	NotBefore time.Duration // on bootClock: until then nothing is released
	Group     int           // of the command; the guardian adds it
	Marks     []string      // entries that only the command and the processes that it starts have together in their environments
	Data      []byte        // for those who release; empty: there is nothing to release
}

// ReleaseAfterKill gives the guardian the data with which the locks are released if holdfast is killed, once the command has ended. If it
// is killed before minimum has passed, nothing is released. marks are entries of the command's environment that no other process has
// together. Where environments cannot be read nothing is released: a command of a nested holdfast may still run.
func (c *Child) ReleaseAfterKill(data []byte, marks []string, minimum time.Duration) error {
	if c.guardian == nil {
		return nil
	}
	defer func() { _ = c.guardian.release.Close() }()
	if !seesEnvironments() {
		return nil
	}
	return releaserInput{NotBefore: bootClock() + minimum, Marks: marks, Data: data}.write(c.guardian.release)
}

// write writes the input into a pipe. It does not wait for a reader that is stopped.
func (in releaserInput) write(pipe *os.File) error {
	text, err := json.Marshal(in)
	if err == nil {
		err = pipe.SetWriteDeadline(time.Now().Add(writeLimit))
	}
	if err == nil {
		_, err = pipe.Write(text)
	}
	return err
}

// readInput reads a releaser's input. It is empty if its writer has written none, or has died meanwhile.
func readInput(pipe *os.File) releaserInput {
	defer func() { _ = pipe.Close() }()
	var in releaserInput
	text, err := io.ReadAll(pipe)
	if err != nil || json.Unmarshal(text, &in) != nil {
		return releaserInput{}
	}
	return in
}

// receiveInput reads the input for a releaser from holdfast, which the channel has from then on.
func receiveInput(pipe *os.File) <-chan releaserInput {
	input := make(chan releaserInput, 1)
	go func() { input <- readInput(pipe) }() // ends with holdfast at the latest
	return input
}

// startReleaser starts the releaser just before a group is killed, which is due at a time on bootClock.
func startReleaser(group int, due time.Duration, input <-chan releaserInput) {
	started := make(chan struct{})
	go func() {
		defer close(started)
		if in := <-input; group > 1 && len(in.Data) > 0 && bootClock() >= in.NotBefore {
			in.Group = group
			_ = in.start()
		}
	}()
	select {
	case <-started:
	case <-time.After(min(startLimit, due-bootClock())): // Promise 2: the group must end before the lease, whatever becomes of the release
	}
}

// start starts the releaser. Its input is in the pipe by then: this process is about to die.
func (in releaserInput) start() error {
	reading, writing, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = reading.Close() }()
	err = in.write(writing)
	_ = writing.Close()
	if err != nil {
		return err
	}
	path, err := ownPath()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	_, err = os.StartProcess(path, []string{GuardianName, releaserArg}, &os.ProcAttr{
		Files: []*os.File{null, null, null, reading},
		Env:   os.Environ(),
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // out of reach of the kill
	})
	return err
}

// isReleaser reports whether a guardian has started this process as a releaser.
func isReleaser() bool { return slices.Equal(os.Args[1:], []string{releaserArg}) }

// runReleaser is the main function of a releaser.
func runReleaser(release func(ctx context.Context, data []byte)) {
	const inputFD = 3
	for n := syscall.Signal(1); n < signalLimit; n++ {
		signal.Ignore(n) // a service manager ends all processes of a service when its main process has died
	}
	setProcessName(GuardianName)
	in := readInput(os.NewFile(inputFD, "input"))
	if in.Group <= 1 || !in.commandEnds(endLimit) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	release(ctx, in.Data)
}

// commandEnds waits until the system says that the command's group does not exist, and shows no process that the command has started. It
// returns false if one is left after limit. A zombie of the group counts: /proc, which could tell it from a living process, may hide those
// of other users. The group's ID may be a stranger's by then, which is why nothing is sent to it.
func (in releaserInput) commandEnds(limit time.Duration) bool {
	// Promise 7: the lock is released only after the whole group has ended. On Linux the guardian, too, is a member, so that the releaser
	// cannot be first.
	unseen := 0 // how often no marked process was seen: one look misses a process that is starting a program just then
	for deadline := time.Now().Add(limit); ; {
		interval := pollInterval
		if errors.Is(syscall.Kill(-in.Group, 0), syscall.ESRCH) {
			if anyMarked(in.Marks) {
				unseen, interval = 0, markInterval
			} else if unseen++; unseen == 2 {
				return true
			}
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(interval)
	}
}
