package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// Numbers of JetStream's errors.
const (
	codeAccountFull      = 10002
	codeNoPeers          = 10005
	codeNoMessage        = 10037
	codeNotForAccount    = 10039
	codeStorageFull      = 10047
	codeTooLong          = 10054
	codeNameInUse        = 10058
	codeNoStream         = 10059
	codeOtherStream      = 10060
	codeOverlap          = 10065
	codeWrongSequence    = 10071
	codeNoReplicas       = 10074
	codeNotEnabled       = 10076
	codeStoreFailed      = 10077
	codeSealed           = 10109
	codeMaxBytesRequired = 10113
	codeWriteUnderWay    = 10164
)

// apiError is what JetStream says of a request that it refuses.
type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("JetStream: %s (error %d)", driver.Quote(e.Description), e.Code)
}

// hasCode reports whether JetStream has refused a request with one of these errors.
func hasCode(err error, codes ...int) bool {
	var e *apiError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// remedies are the refusals that last, and what helps.
var remedies = map[int]string{
	codeAccountFull:      raiseLimits,
	codeStorageFull:      raiseLimits,
	codeNotForAccount:    "enable JetStream for the account",
	codeNotEnabled:       "start the servers with JetStream (jetstream {})",
	codeTooLong:          "raise max_msg_size of the bucket",
	codeOtherStream:      "another stream has the subjects of the bucket: remove them there",
	codeOverlap:          "another stream has the subjects of the bucket: remove them there, or name another bucket in the URL",
	codeSealed:           "the bucket is sealed: name another one in the URL",
	codeMaxBytesRequired: "the account demands a limit: make the bucket with nats kv add --max-bucket-size",
	codeNoReplicas:       setReplicas,
}

const (
	raiseLimits = "raise the limits of the account, or of the servers (max_file_store)"
	setReplicas = "set the URL parameter " + paramReplicas + " to the number of servers that keep the bucket"
)

// classify marks what a person must mend.
func (e *apiError) classify() error {
	if remedy, lasts := remedies[e.Code]; lasts {
		return driver.Denied(fmt.Errorf("%w: %s", e, remedy))
	}
	if e.Code == codeNoPeers { // it passes if the other servers are about to start
		return fmt.Errorf("%w: start more servers, or %s", e, setReplicas)
	}
	if e.Code == codeStoreFailed && strings.Contains(e.Description, "maximum") { // it is full; nothing was stored
		return driver.Denied(fmt.Errorf("%w: raise the limits of the bucket, or of the account", e))
	}
	return e
}

// errNoResponders: nothing was done, because no server has an interest in the subject. It need not last: a stream may be without a leader.
var errNoResponders = errors.New("no server answers: JetStream is not enabled for the account, the bucket does not exist any more, or " +
	"it has no leader at present")

// unanswered is the error of a request without an answer.
func (l *link) unanswered(c *conn, r outgoing, err error) error {
	switch why := c.reason(); {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return driver.Denied(errors.New("the record is longer than max_payload of the servers: store less data with the lock, or raise it"))
	case errors.Is(err, natsgo.ErrHeadersNotSupported):
		return driver.Denied(errors.New("the server has no headers: NATS 2.10 or later is needed"))
	case errors.Is(err, natsgo.ErrConnectionClosed):
		return noConnection(why)
	case errors.Is(err, errEnded) && why != nil:
		return fmt.Errorf("%w: %s", err, driver.ErrorText(why))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer to %s within %s", driver.Quote(r.subject), driver.FormatDuration(l.timeout))
	}
	return err
}

// noConnection is the error of a request for which there was no connection.
func noConnection(why error) error {
	const text = "there is no connection to a server at present, and nothing was sent"
	if why == nil {
		return errors.New(text)
	}
	return errors.New(text + " (" + driver.ErrorText(why) + ")")
}

// missing is the error for a permission that the user lacks.
func missing(what, subject string) error {
	return driver.Denied(fmt.Errorf("the user may not %s to %s: add the subject to the user's permissions", what, driver.Quote(subject)))
}

// isLogin reports whether the servers have refused a login.
func isLogin(err error) bool {
	return slices.ContainsFunc([]error{natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired},
		func(e error) bool { return errors.Is(err, e) })
}

func refusedLogin(err error) error {
	return driver.Denied(fmt.Errorf("the servers refuse the login (%w): correct the user and the password, the token, or the file of "+
		"credentials", err))
}

// connecting is the error of a first connection.
func connecting(err error) error {
	if untrusted := serverurl.Untrusted(err); untrusted != nil {
		return untrusted
	}
	var unresolved *net.DNSError
	switch {
	case isLogin(err):
		return refusedLogin(err)
	case errors.As(err, &unresolved): // the name is not shown: without an @ a token passes for a host
		return fmt.Errorf("the address of a host cannot be found (%s): correct the host, or put an @ between a token and the host",
			unresolved.Err)
	case errors.Is(err, natsgo.ErrSecureConnWanted):
		return driver.Denied(fmt.Errorf("%w: leave the parameters for TLS out of the URL, or enable TLS in the servers", err))
	case errors.Is(err, natsgo.ErrNoServers):
		return errors.New("none of the servers accepts a connection")
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the server accepts a connection, and does not answer")
	}
	return err
}

func connectError(err error) error { return driverutil.OpError("connect", backend, "", err) }
