package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// mountTable has a line for each mount of this process (proc_pid_mountinfo(5)); tests replace it.
var mountTable = "/proc/self/mountinfo"

// mount is one line of the mount table.
type mount struct {
	point, kind, source string
	readOnly            bool
}

// Kinds of file systems. Those of networks let several machines use the folder, and their locks of
// files may not exclude the processes of one machine. A name after "fuse." is the program's.
var (
	networkKinds = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "gpfs", "ocfs2", "gfs2", "beegfs",
		"afs",
		"coda", "orangefs", "davfs", "ncpfs", "vboxsf", "vmhgfs", "prl_fs", "virtiofs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone",
		"fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs", "fuse.JuiceFS", "fuse.goofys", "fuse.blobfuse", "fuse.blobfuse2",
		"fuse.curlftpfs",
		"fuse.vmhgfs-fuse", "fuse.osxfs", "fuse.grpcfuse", "fuse.davfs", "fuse.davfs2", "fuse.smbnetfs", "fuse.mount-s3", "fuse.mountpoint-s3"}
	memoryKinds = []string{"tmpfs", "ramfs"}
)

// mountOf finds the mount of a path without symbolic links.
func mountOf(table, path string) (found mount, ok bool) {
	for line := range strings.Lines(table) {
		front, back, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(front), strings.Fields(back)
		if len(left) < 6 || len(right) < 2 {
			continue
		}
		point := unescapeMount(left[4])
		// A later line covers an earlier one at the same place.
		if below(path, point) && len(point) >= len(found.point) {
			options := strings.Split(left[5], ",")
			if len(right) > 2 {
				options = append(options, strings.Split(right[2], ",")...)
			}
			found, ok = mount{point, right[0], unescapeMount(right[1]), slices.Contains(options, "ro")}, true
		}
	}
	return found, ok
}

// below reports whether path is point or below it.
func below(path, point string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(point, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescapeMount(text string) string { return mountEscapes.Replace(text) }

func (l *Locker) examineFileSystem(f findings) {
	table, err := os.ReadFile(mountTable)
	path, pathErr := filepath.EvalSymlinks(l.dir)
	m, known := mountOf(string(table), path)
	if err != nil || pathErr != nil || !known {
		f.Unchecked(subjectFileSystem, "", "the mount of the folder is unknown: %v", errors.Join(err, pathErr))
	} else {
		f.Of("a folder on Linux, " + strings.ReplaceAll(m.kind, ".", " "))(m.examine()) // fuse.sshfs looks like a host
	}
	var space unix.Statfs_t
	if err := unix.Statfs(l.dir, &space); err != nil {
		f.Unchecked(subjectSpace, "", "unknown: %v", err)
		return
	}
	const little, few = 4 << 20, 100
	free := space.Bavail * uint64(max(space.Bsize, 0))
	found := driver.Finding{Subject: subjectSpace, Detail: fmt.Sprintf("%d MiB", free>>20),
		Remedy: "Free some space, or use a folder on another file system."}
	switch {
	case free == 0 || space.Files > 0 && space.Ffree == 0:
		found.Level, found.Detail = driver.LevelWrong, "none: no record can be written, so no lock can be acquired or renewed"
	case free < little || space.Files > 0 && space.Ffree < few:
		found.Level, found.Detail = driver.LevelDoubtful,
			fmt.Sprintf("only %d KiB and %d files: without space no lock can be acquired or renewed", free>>10, space.Ffree)
	default:
		found.Remedy = ""
	}
	f(found)
}

// examine evaluates the kind of the file system.
func (m mount) examine() driver.Finding {
	found := driver.Finding{Subject: subjectFileSystem, Level: driver.LevelDoubtful}
	const local = "Use a folder on a local disk of this machine."
	switch {
	case slices.Contains(networkKinds, m.kind):
		found.Level = driver.LevelWrong
		found.Detail = fmt.Sprintf("%s, mounted at %s from %s, is a network's or another system's: the driver serves one machine, and file "+
			"locks may not exclude there", m.kind, m.point, driver.Quote(m.source))
		found.Remedy = "Use a folder on a local disk of this machine; for several machines use MongoDB or Azure Blob Storage."
	case m.readOnly:
		found.Level = driver.LevelWrong
		found.Detail = fmt.Sprintf("%s, mounted at %s, is read-only: no lock can be acquired", m.kind, m.point)
		found.Remedy, found.Command = "Mount it for writing, or use another folder:", "mount -o remount,rw "+quoteShell(m.point)
	case slices.Contains(memoryKinds, m.kind):
		found.Detail = fmt.Sprintf("%s, mounted at %s, is in memory: a reboot or an unmount loses the data of the locks, and their last tokens",
			m.kind, m.point)
		found.Remedy = local
	case m.kind == "overlay":
		found.Detail = fmt.Sprintf("overlay, mounted at %s, is the layer of one container: other containers do not see these locks, and they "+
			"end with it", m.point)
		found.Remedy = "Mount a volume of the host into all containers that share the locks, and use a folder in it."
	case strings.HasPrefix(m.kind, "fuse"):
		found.Detail = fmt.Sprintf("%s, mounted at %s, is kept by a program, which may keep it on a network and may not lock files", m.kind,
			m.point)
		found.Remedy = local
	default:
		found.Level, found.Detail = driver.LevelOK, fmt.Sprintf("%s, mounted at %s", m.kind, m.point)
	}
	return found
}

// examineClock says how a time namespace is handled. A clock that cannot be read makes no Locker.
func (l *Locker) examineClock(f findings) {
	offset, err := clockOffset()
	switch {
	case err != nil:
		f.Unchecked(subjectClock, "", "%v", err)
	case offset != 0:
		f.OK(subjectClock, "the time since boot judges expiry; the time namespace of this process adds %v to it, which is subtracted", offset)
	default:
		f.OK(subjectClock, "the time since boot judges expiry, for all processes of this machine")
	}
}

// examineMachine says how the driver distinguishes records of an earlier boot from those of another
// machine.
func (l *Locker) examineMachine(f findings) {
	id, err := machineID()
	switch {
	case err != nil:
		f.Unchecked(subjectMachine, "", "%v", err)
	case strings.HasPrefix(id, "host "):
		f(driver.Finding{Subject: subjectMachine, Level: driver.LevelDoubtful,
			Detail: "there is no /etc/machine-id, so the host name stands for the machine: when it changes with a reboot, as in containers, the " +
				"old records must be deleted by hand",
			Remedy:  "In a container, mount the host's /etc/machine-id read-only. On a host, make one:",
			Command: "systemd-machine-id-setup"})
	default:
		f.OK(subjectMachine, "/etc/machine-id; its digest in records is %s", l.clock.machine)
	}
}

// watchCommand raises the limit that an error of inotify is about.
func watchCommand(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "sysctl -w fs.inotify.max_user_instances=1024"
	case errors.Is(err, syscall.ENOSPC):
		return "sysctl -w fs.inotify.max_user_watches=1048576"
	}
	return ""
}
