package child

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
)

// logIfDue reports a group that does not end, and a guardian that has ended.
func (s *supervisor) logIfDue() {
	now := time.Now()
	if (s.killSent || s.commandEnded) && now.After(s.nextStuckReport) {
		s.nextStuckReport = now.Add(stuckReportInterval)
		group := fmt.Sprintf("process group %d", s.child.pid)
		if members := processes(s.child.members()); members != "" {
			group += " (" + members + ")"
		}
		after := "is released only when it has ended"
		if s.lost {
			after = "is lost, and another may hold it"
		}
		if s.killSent {
			s.log.Errorf("%s is still running after SIGKILL; %q %s", group, s.hold.Name(), after)
		} else {
			s.log.Infof("%s is still running; %q %s", group, s.hold.Name(), after)
		}
	}
	if !s.unguardedSince.IsZero() && now.After(s.unguardedSince.Add(ForwardDelay)) {
		s.unguardedSince = time.Time{}
		if !s.commandEnded && !s.killSent {
			s.log.Errorf("the guardian of process group %d has ended: %s", s.child.pid, UnguardedRisk)
		}
	}
}

// UnguardedRisk is what can happen without a guardian.
const UnguardedRisk = "if holdfast is now killed or stopped, the command or a process that it started may keep running without the lock"

func (s *supervisor) logSuspended() {
	s.log.Infof("suspended together with the command; %q is lost unless they are resumed within %s", s.hold.Name(),
		format.Duration(s.hold.LostIn()))
	s.log.Flush()
}

// logSignalError logs an error once: SIGKILL is sent again at every check.
func (s *supervisor) logSignalError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.signalError {
		s.log.Verbosef("cannot signal process group %d: %s", s.child.pid, text)
	}
	s.signalError = text
}

// logGuardianKill says why the command was killed if the guardian did it.
func (s *supervisor) logGuardianKill() {
	if s.child.guardianKilled() && s.exitCode == exitcode.Signal+int(syscall.SIGKILL) {
		s.log.Errorf("the guardian killed process group %d: the lease of %q had nearly expired, and holdfast had reported no renewal",
			s.child.pid, s.hold.Name())
	}
}

// processes names processes, or returns "" if there are none.
func processes(pids []int) string {
	var all []string
	for _, pid := range pids {
		all = append(all, "process "+strconv.Itoa(pid))
	}
	return strings.Join(all, ", ")
}
