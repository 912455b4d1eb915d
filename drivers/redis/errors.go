package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// denials are the codes of errors after which a person must change something.
var denials = map[string]string{
	"NOPERM":    "grant the user the rights that docs/redis.md lists",
	"NOAUTH":    "it demands user and password",
	"WRONGPASS": "check user and password",
	"MISCONF":   "mend what keeps the server from saving its data",
}

// classify marks what a person must mend.
func classify(err error) error {
	var of goredis.Error
	switch {
	case err == nil, errors.Is(err, goredis.Nil), errors.Is(err, driver.ErrDenied):
		return err
	case !errors.As(err, &of):
		return classifyTLS(err)
	}
	switch code, text, _ := strings.Cut(of.Error(), " "); {
	case denials[code] != "":
		return driver.Denied(fmt.Errorf("%w (%s)", err, denials[code]))
	case strings.HasPrefix(text, "DB index is out of range"):
		return driver.Denied(fmt.Errorf("the server has fewer databases: %w", err))
	case strings.HasPrefix(text, "ACL failure in script"), strings.HasPrefix(text, "The user executing the script can't"):
		// The script ends at once, and nothing in it fails after its write.
		return driver.Denied(fmt.Errorf("%w (%s)", err, denials["NOPERM"]))
	case code == "WRONGTYPE":
		return driver.Damaged(errors.New("the value of the key is no string, and was not written by this program"))
	}
	return err
}

// classifyTLS marks what is wrong with a certificate.
func classifyTLS(err error) error {
	if untrusted := serverurl.Untrusted(err); untrusted != nil {
		return untrusted
	}
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" || !strings.Contains(alert.Error(), "certificate") {
		return err
	}
	return driver.Denied(fmt.Errorf("the server refuses the client's certificate, or demands one (%w): correct the URL parameters %s and %s",
		err, serverurl.ParamCertFile, serverurl.ParamKeyFile))
}

// What helps when a server and its URL disagree about TLS.
const (
	withTLS    = "if the server demands TLS, the scheme is rediss"
	withoutTLS = "if the server has no TLS, the scheme is redis"
)

// unanswered adds to the error of a connection what may help if no server has answered so far. One that uses TLS closes a connection
// without, and one that does not waits for the end of what it takes for a command.
func (s *store) unanswered(err error) error {
	helps, ended := withTLS, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if dial := (*net.OpError)(nil); s.tls && (!errors.As(err, &dial) || dial.Op != "dial") {
		helps, ended = withoutTLS, ended || errors.Is(err, context.DeadlineExceeded)
	}
	if !ended || s.answered.Load() {
		return err
	}
	return fmt.Errorf("%w: %s", err, helps)
}

var errAnswer = errors.New("the server's answer has another form")

func connectError(err error) error { return driverutil.OpError("connect", backend, "", err) }
