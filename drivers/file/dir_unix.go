//go:build !windows

package file

import (
	"errors"
	"os"
)

// syncDir waits until the disk has the renaming of a file in the folder.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
