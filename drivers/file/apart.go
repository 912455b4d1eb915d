package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// apart returns the URL of a folder in the folder.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	above, _, err := parseURL(rawURL)
	if err != nil {
		return rawURL, func(context.Context) error { return err }
	}
	dir := filepath.Join(above, name)
	var missing []string // the folders above that are made with it
	for ; above != filepath.Dir(above); above = filepath.Dir(above) {
		if _, err := os.Stat(above); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, above)
	}
	return driverutil.Below(rawURL, name), func(context.Context) error {
		if err := os.RemoveAll(dir); err != nil {
			return driver.Errorf("file: %w", err)
		}
		for _, above := range missing {
			_ = os.Remove(above) // unless somebody else uses it by now
		}
		return nil
	}
}
