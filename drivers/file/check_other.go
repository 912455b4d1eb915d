//go:build !linux

package file

import "runtime"

func (l *Locker) examineFileSystem(f findings) {
	f.Of("a folder on "+runtime.GOOS).Unchecked(subjectFileSystem, "", "this system's mounts are not examined: the folder must be on a "+
		"local disk, not on a network")
	f.Unchecked(subjectSpace, "", "it is not examined on this system")
}

func (l *Locker) examineClock(f findings) {
	f.OK(subjectClock, "the wall clock judges expiry on this system: setting it forward ends leases early")
}

func (l *Locker) examineMachine(f findings) {
	f.OK(subjectMachine, "the host name; its digest in records is %s", l.clock.machine)
}

func watchCommand(error) string { return "" }
