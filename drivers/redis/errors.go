package redis

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// classify marks what a person must mend.
func classify(err error) error {
	var of goredis.Error
	if !errors.As(err, &of) || errors.Is(err, goredis.Nil) {
		return err
	}
	switch code, text, _ := strings.Cut(of.Error(), " "); {
	case slices.Contains([]string{"NOPERM", "NOAUTH", "WRONGPASS", "MISCONF"}, code):
		return driver.Denied(err)
	case strings.HasPrefix(text, "DB index is out of range"):
		return driver.Denied(fmt.Errorf("the server has fewer databases: %w", err))
	case strings.HasPrefix(text, "ACL failure in script"), strings.HasPrefix(text, "The user executing the script can't"):
		return driver.Denied(err) // the script ends at once, and nothing in it fails after its write
	case code == "WRONGTYPE":
		return driver.Damaged(errors.New("the value of the key is no string, and was not written by this program"))
	}
	return err
}

var errAnswer = errors.New("the server's answer has another form")

func connectError(err error) error { return driverutil.OpError("connect", backend, "", err) }
