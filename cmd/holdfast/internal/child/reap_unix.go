//go:build unix

package child

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ownChildren are the processes that holdfast has started and whose status it reads itself.
var ownChildren = children{pids: map[int]bool{}, again: make(chan struct{}, 1)}

// children keeps the reaper of orphans from the processes whose status others read.
type children struct {
	mu       sync.Mutex
	starting int // processes whose ID is not known yet
	pids     map[int]bool
	again    chan struct{} // has a value when a process was started or reaped: orphans may have been left out until then
}

// start starts a process. From before its start until reaped is called, no reaper takes its status.
func (c *children) start(path string, args []string, attributes *os.ProcAttr) (*os.Process, error) {
	c.mu.Lock()
	c.starting++
	c.mu.Unlock()
	process, err := os.StartProcess(path, args, attributes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starting--
	if err == nil {
		c.pids[process.Pid] = true
	}
	c.reapAgain()
	return process, err
}

func (c *children) reapAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// reaped must be called after the status of a process was read: its ID may be an orphan's now.
func (c *children) reaped(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, pid)
	c.reapAgain()
}

// reapOrphan reaps a process that has ended, unless holdfast has started it. It reports whether the process is gone.
func (c *children) reapOrphan(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starting > 0 || c.pids[pid] {
		return false
	}
	_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // does not block
	return true
}

// ReapOrphans reaps, until stop is called, processes that ended after their parent, if holdfast inherits them. It must be called before
// anything is started.
func ReapOrphans() (stop func()) {
	if !inheritOrphans() {
		return func() {}
	}
	return reapOrphans(inheritedChildren())
}

// reapOrphans reaps, until stop is called, processes that ended after their parent. They become children of process 1,
// which holdfast may be in a container, or of a subreaper. It owns inherited, the IDs of children that holdfast has not started.
func reapOrphans(inherited map[int]bool) (stop func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for pid := range orphans(inherited) {
				if ownChildren.reapOrphan(pid) {
					delete(inherited, pid) // the ID may be another's now
				}
			}
			select {
			case <-ended:
			case <-ownChildren.again:
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ended)
		close(over)
		<-done
	}
}
