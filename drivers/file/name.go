package file

import "github.com/holdfast-go/holdfast/driver/lockrecord"

// stem returns the file name, without its ending, for the name of a lock. With an ending it stays below the
// 255 bytes that file systems allow.
func stem(name string) string { return lockrecord.FileKey(name) }

// isStem reports whether base may be the stem of a name.
func isStem(base string) bool {
	_, ok := lockrecord.NameOfFileKey(base)
	return ok || lockrecord.IsLong(base)
}

// nameOf returns the lock's name for a stem, or the stem itself if that does not contain the name.
func nameOf(base string) string {
	if name, ok := lockrecord.NameOfFileKey(base); ok {
		return name
	}
	return base
}
