//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package file

// maxWatchedFiles bounds the files of a folder that is watched. kqueue needs an open file for each
// of them, and the program needs open files, too.
const maxWatchedFiles = 512

func openWatch(dir string, changed changedFunc, missed func()) (*folderWatch, error) {
	return openSystemWatch(dir, changed, missed)
}

// signalFree does nothing: the system reports that the record was replaced.
func signalFree(string) {}

func explainWatch(err error) error { return err }
