package mongo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// Error codes of the server, from its error_codes.yml.
const (
	codeUnauthorized              = 13
	codeAuthenticationFailed      = 18
	codeNamespaceNotFound         = 26
	codeWriteConcernTimeout       = 64
	codeUnknownWriteConcern       = 79
	codeIndexOptionsConflict      = 85
	codeIndexKeyConflict          = 86
	codeShutdownInProgress        = 91
	codeUnsatisfiableWriteConcern = 100
)

// because adds the cause of a context to an error. The context may be that of
// another lock's hold, and its cause, such as [driver.ErrLost], tell a definite
// outcome: of that lock, not of this call. Such a cause is told as text alone.
func because(err, cause error) error {
	for _, outcome := range []error{driver.ErrHeld, driver.ErrLost, driver.ErrConflict, driver.ErrInvalid, driver.ErrClosed} {
		if errors.Is(cause, outcome) {
			return fmt.Errorf("%w (%v)", err, cause) //nolint:errorlint // that is the point
		}
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// explain says what to do about an error, where the server's own words do not,
// and keeps lease IDs out of it that the call has to do with: the server's words
// may quote them.
func explain(err error, ids []string, namespace string) error {
	var reply mongo.ServerError
	if errors.As(err, &reply) {
		return withoutIDs(advise(err, namespace), ids)
	}
	return advise(err, namespace)
}

// withoutDetails drops what the server quotes of a document that breaks a rule of
// validation: it may hold an ID that this program does not know, another's.
func withoutDetails(err error) error {
	var failed mongo.WriteException
	if !errors.As(err, &failed) {
		return err
	}
	failed.Raw = nil
	failed.WriteErrors = slices.Clone(failed.WriteErrors)
	for i := range failed.WriteErrors {
		failed.WriteErrors[i].Details, failed.WriteErrors[i].Raw = nil, nil
	}
	return failed
}

func advise(err error, namespace string) error {
	if selection := unreachable(err); selection != nil {
		return selection
	}
	switch {
	case hasCode(err, codeUnauthorized):
		return fmt.Errorf("the user lacks a privilege on %s (readWrite has all that is needed): %w", namespace, err)
	case hasCode(err, codeAuthenticationFailed):
		return fmt.Errorf("user, password or authSource is wrong: %w", err)
	case strings.Contains(err.Error(), "requires at least"): // the driver's text for a server that is too old
		return fmt.Errorf("the server is older than MongoDB 4.4: %w", err)
	default:
		return err
	}
}

// withoutIDs gives up the chain of an error that shows an ID: it has it too. An
// ID so short that any text may contain it is no secret.
func withoutIDs(err error, ids []string) error {
	const secret = 8
	text := err.Error()
	for _, id := range ids {
		if len(id) >= secret {
			text = strings.ReplaceAll(text, id, "(lease ID)")
		}
	}
	if text != err.Error() {
		return errors.New(text)
	}
	return err
}

func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	for _, code := range codes {
		if server.HasErrorCode(code) {
			return true
		}
	}
	return false
}
