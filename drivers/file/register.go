package file

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	driver.Register(driver.Description{
		Name:           "a folder",
		Schemes:        []string{"file"},
		Examples:       []driver.Example{{URL: "file:/var/lib/holdfast", Help: "a folder, for the processes of one machine"}},
		Reach:          driver.ReachMachine,
		Open:           open,
		OpenForReading: openForReading,
		OpenForCheck:   openForCheck,
		Apart:          apart,
		Params:         params,
		Place:          place,
		TestURL:        "file:DIR",
	})
}

// place returns the folder. A relative one depends on the working directory, so it becomes absolute.
func place(rest string) string {
	if dir, err := url.PathUnescape(rest); err == nil && !strings.HasPrefix(dir, "/") {
		if dir, err = filepath.Abs(dir); err == nil {
			return filepath.ToSlash(dir)
		}
	}
	return rest
}
