package child

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

// Child is a running command and the job object that contains it and the processes that it
// starts. The command is put into the job just after its start, so a process that it starts
// before that moment is not in the job: it may run on after the command, after holdfast and after the loss of the lock.
// The job ends when holdfast ends for any reason.
type Child struct {
	pid          int
	process      *os.Process
	job          windows.Handle
	code         int // readable once ended is closed
	ended        chan struct{}
	stateChanged chan os.Signal // receives one value, when the command has ended
	stopEvents   chan os.Signal // never receives anything: there is no job control
}

// Start starts the command. The job object serves as its guardian. Just before the start mayStart is asked, and its error is returned.
func Start(path string, args, env []string, mayStart func() error) (c *Child, unguarded, err error) {
	job, err := newJob()
	if err != nil {
		return nil, nil, err
	}
	var process *os.Process
	err = mayStart() // Promise 2: this process may have been paused until now
	if err == nil {
		process, err = os.StartProcess(path, args, &os.ProcAttr{
			Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
			Sys: &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP},
		})
	}
	if err == nil {
		if err = assignToJob(job, process.Pid); err != nil {
			_ = process.Kill() // outside the job it could outlive holdfast
			_, _ = process.Wait()
		}
	}
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, nil, err
	}
	c = &Child{pid: process.Pid, process: process, job: job, ended: make(chan struct{}), stateChanged: make(chan os.Signal, 1)}
	go func() {
		c.code = exitcode.Unavailable
		if state, err := process.Wait(); err == nil {
			c.code = state.ExitCode()
		}
		close(c.ended)
		c.stateChanged <- os.Interrupt
	}()
	return c, nil, nil
}

// poll returns the command's exit code once it has ended.
func (c *Child) poll() (code int, ended bool) {
	select {
	case <-c.ended:
		return c.code, true
	default:
		return 0, false
	}
}

// orderKill does nothing: the system ends the job when holdfast ends. Nothing ends the job
// while holdfast is only suspended.
func (c *Child) orderKill(func() time.Duration, time.Duration) error { return nil }

func (c *Child) groupSignals() <-chan os.Signal { return nil }

func (c *Child) guardianKilled() bool { return false }

// StoppedInTime is false: no guardian reports it.
func (c *Child) StoppedInTime(time.Duration) bool { return false }

// newJob makes a job object whose processes end when its last handle is closed.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return 0, errors.Join(os.NewSyscallError("SetInformationJobObject", err), windows.CloseHandle(job))
	}
	return job, nil
}

// assignToJob puts a process into the job. One that has ended already is refused: that is no error, since it needs no job. The
// processes that it has started are not in the job then, and nothing ends them.
func assignToJob(job windows.Handle, pid int) error {
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	err = windows.AssignProcessToJobObject(job, process)
	if state, waitErr := windows.WaitForSingleObject(process, 0); waitErr == nil && state == windows.WAIT_OBJECT_0 {
		err = nil
	}
	return errors.Join(os.NewSyscallError("AssignProcessToJobObject", err), windows.CloseHandle(process))
}

// signal sends Ctrl-Break, the only event that can be sent to a process group. It reaches
// only the programs of this console.
func (c *Child) signal(os.Signal) error {
	return os.NewSyscallError("GenerateConsoleCtrlEvent",
		windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.pid)))
}

func (c *Child) signalAndWake(sig os.Signal) error { return c.signal(sig) }

func (c *Child) wake() error { return nil }

// unreachable finds none: the job ends whatever users its processes have.
func (c *Child) unreachable() []int { return nil }

// members finds none: they end with the job.
func (c *Child) members() []int { return nil }

// IsGuardian is false: the job object serves as the guardian.
func IsGuardian() bool { return false }

// RunGuardian does nothing.
func RunGuardian(func(ctx context.Context, data []byte)) {}

// ReleaseAfterKill does nothing: the job object cannot release the locks.
func (c *Child) ReleaseAfterKill([]byte, []string, time.Duration) error { return nil }

// ReapOrphans does nothing: a process of Windows leaves nothing behind.
func ReapOrphans() (stop func()) { return func() {} }

func (c *Child) kill() error {
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(c.job, exitcode.Signal+uint32(syscall.SIGKILL)))
}

// jobAccounting is Windows' JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type jobAccounting struct {
	TotalUserTime, TotalKernelTime                     int64
	ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64
	TotalPageFaultCount, TotalProcesses                uint32
	ActiveProcesses, TotalTerminatedProcesses          uint32
}

// groupRunning reports whether the job has a running process.
func (c *Child) groupRunning() bool {
	var state jobAccounting
	err := windows.QueryInformationJobObject(c.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&state)), uint32(unsafe.Sizeof(state)), nil)
	return err == nil && state.ActiveProcesses > 0
}

func (c *Child) jobControl(os.Signal, func(), func() bool) {}

// Close closes the job. What still runs in it ends.
func (c *Child) Close() { _ = windows.CloseHandle(c.job) }
