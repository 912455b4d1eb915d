// Package filekeys has the rules for the keys of a certmagic Storage. Keys are slash-separated
// paths. A key with a value is a file. Directories exist only as prefixes of files.
package filekeys

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// MaxKey and MaxValue are the longest key and value in bytes. A document of MongoDB has at most
// 16 MiB, key and field names included.
const (
	MaxKey   = 1024
	MaxValue = 16<<20 - 16<<10
)

// Clean returns the key without empty, "." and ".." parts and without slashes at its ends, as
// certmagic.FileStorage does. A ".." cannot leave the root. The root itself is "".
func Clean(key string) (string, error) {
	switch {
	case len(key) > MaxKey:
		return "", driver.Invalid("key", driver.Quote(key), driver.ByteRange(0, MaxKey)+" long")
	case !utf8.ValidString(key):
		return "", driver.Invalid("key", driver.Quote(key), "valid UTF-8")
	case strings.ContainsRune(key, 0):
		return "", driver.Invalid("key", driver.Quote(key), "without a NUL character")
	}
	return path.Clean("/" + key)[1:], nil
}

// CleanFile is Clean for a key that must name a file.
func CleanFile(key string) (string, error) {
	clean, err := Clean(key)
	if err == nil && clean == "" {
		err = driver.Invalid("key", driver.Quote(key), "the name of a file")
	}
	return clean, err
}

// CheckValue returns an error if a value is too long.
func CheckValue(value []byte) error {
	if len(value) > MaxValue {
		return driver.Invalid("value", strconv.Itoa(len(value))+" bytes long",
			driver.ByteRange(0, MaxValue)+" long: MongoDB has at most 16 MB in a document")
	}
	return nil
}

// Below returns the prefix that all keys below a directory have.
func Below(dir string) string {
	if dir == "" {
		return ""
	}
	return dir + "/"
}

// List returns what certmagic.FileStorage lists for a directory, in its order. files has keys
// of files below the directory. With recursive, the result also has the directories between
// them; otherwise it has the files and directories directly in dir.
func List(dir string, files []string, recursive bool) []string {
	prefix := Below(dir)
	var keys []string
	for _, file := range files {
		for end := len(prefix); ; end++ {
			slash := strings.IndexByte(file[end:], '/')
			if slash < 0 {
				keys = append(keys, file)
				break
			}
			end += slash
			keys = append(keys, file[:end])
			if !recursive {
				break
			}
		}
	}
	slices.SortFunc(keys, compare)
	return slices.Compact(keys)
}

// compare orders keys part by part, so that a directory is followed by what is in it.
func compare(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
