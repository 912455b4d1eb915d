//go:build unix

package file

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/driver"
)

// examineMode examines a folder that no other user can replace.
func (l *Locker) examineMode(f findings, info fs.FileInfo) {
	uid, _ := owner(info)
	mode := info.Mode()
	found := driver.Finding{Subject: subjectMode, Level: driver.LevelDoubtful}
	switch err := unix.Access(l.dir, unix.R_OK|unix.W_OK|unix.X_OK); {
	case err != nil:
		found.Level = driver.LevelWrong
		found.Detail = fmt.Sprintf("user %d, who runs this process, may not read and write the folder of user %d with mode %04o (%v)",
			os.Geteuid(), uid, mode.Perm(), err)
		found.Remedy = "Let all processes that use the folder run as its owner, or give it to their user:"
		found.Command = fmt.Sprintf("chown %d %s", os.Geteuid(), quoteShell(l.dir))
	case mode.Perm()&0o002 != 0:
		found.Detail = fmt.Sprintf("every user may create files in the folder (mode 1%03o), as in /tmp: they can take a lock's file name "+
			"first, and cleaners of such folders remove lock files", mode.Perm())
		found.Remedy = "Use a folder of your own, or close this one:"
		found.Command = "chmod o-w " + quoteShell(l.dir)
	case mode.Perm()&0o020 != 0:
		found.Detail = fmt.Sprintf("members of the folder's group may replace files in it (mode %04o)", mode.Perm())
		found.Remedy = "Unless the group is the user's own:"
		found.Command = "chmod g-w " + quoteShell(l.dir)
	default:
		f.OK(subjectMode, "user %d, mode %04o", uid, mode.Perm())
		return
	}
	f(found)
}
