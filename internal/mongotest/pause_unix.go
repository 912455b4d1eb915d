//go:build unix

package mongotest

import (
	"errors"
	"syscall"
	"time"
)

// pause returns when the process has stopped.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); !stopped(p.cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("mongod did not stop within 10s of SIGSTOP")
		}
	}
	return nil
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
