//go:build unix

package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
)

// Process is a running process of the workload. Its methods must not be called concurrently.
type Process struct {
	Config
	cmd     *exec.Cmd
	rec     *history.Recorder
	log     string
	ended   chan struct{}
	stopped bool
}

// Start starts a process that runs this same program. rec records what the caller does to it.
func Start(c Config, rec *history.Recorder) (*Process, error) {
	env, err := c.environ()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(c.Dir, fmt.Sprintf("process-%04d.log", c.Process))
	log, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), self) // Terminate and Kill end it
	cmd.Env = append(os.Environ(), env)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{Config: c, cmd: cmd, rec: rec, log: path, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // ProcessState says how it ended
	}()
	return p, nil
}

// Kill ends the process like a crash (SIGKILL), and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended
	<-p.ended
}

// Stop stops the process (SIGSTOP) and records that in the history.
func (p *Process) Stop() error {
	p.rec.Record(history.Line{Kind: history.Pause, Client: p.Client, Process: p.Process})
	p.stopped = true
	return p.cmd.Process.Signal(syscall.SIGSTOP)
}

// Continue continues a stopped process (SIGCONT) and records that in the history.
func (p *Process) Continue() error {
	err := p.cmd.Process.Signal(syscall.SIGCONT)
	p.stopped = false
	p.rec.Record(history.Line{Kind: history.Resume, Client: p.Client, Process: p.Process})
	return err
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Terminate asks the process to end normally (SIGTERM), stopped or not, and waits until it has
// ended. If ctx ends first, the process is killed. If the process did not end normally, the error
// says how it ended and where its log is.
func (p *Process) Terminate(ctx context.Context) error {
	if p.stopped {
		if err := p.Continue(); err != nil {
			return err
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // writes its goroutines to the log
		select {
		case <-p.ended:
		case <-time.After(5 * time.Second):
			p.Kill()
		}
		return fmt.Errorf("workload: client %d did not end normally: %w; see %s", p.Client, ctx.Err(), p.log)
	}
	if state := p.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("workload: client %d ended with %v; see %s", p.Client, state, p.log)
	}
	return nil
}
