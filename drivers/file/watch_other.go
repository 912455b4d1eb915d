//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package file

import "github.com/fsnotify/fsnotify"

// openWatch fails on systems that cannot watch a folder; waiters poll there.
func openWatch(dir string) (*fsnotify.Watcher, error) { return openSystemWatch(dir) }

func explainWatch(err error) error { return err }
