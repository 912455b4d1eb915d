//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package file

// maxWatchedFiles is 0: the system needs no open file for each file of a folder.
const maxWatchedFiles = 0

// openWatch fails on systems that cannot watch a folder; waiters poll there.
func openWatch(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
	return openSystemWatch(dir, changed, missed)
}

// signalFree does nothing: the system reports that the record was replaced.
func signalFree(string) {}

func explainWatch(err error) error { return err }
