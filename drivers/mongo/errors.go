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
	codeBadValue                  = 2
	codeUnauthorized              = 13
	codeAuthenticationFailed      = 18
	codeNamespaceNotFound         = 26
	codeNamespaceExists           = 48
	codeCommandNotFound           = 59
	codeWriteConcernTimeout       = 64
	codeUnknownWriteConcern       = 79
	codeIndexOptionsConflict      = 85
	codeIndexKeyConflict          = 86
	codeShutdownInProgress        = 91
	codeUnsatisfiableWriteConcern = 100
	codeCommandNotSupported       = 115
	codeUnrecognizedStage         = 40324
	codeOnlyOnReplicaSets         = 40573 // $changeStream
)

// addCause adds the cause of a context's end to an error. The context may belong to another
// lock's hold, and its cause, such as [driver.ErrLost], is then the outcome of that lock. Such
// a cause is added as text only, so that errors.Is does not match it.
func addCause(err, cause error) error {
	if driver.OutcomeKnown(cause) {
		// Promise 4: the loss of another lock is no loss of this one.
		return fmt.Errorf("%w (%v)", err, cause) //nolint:errorlint // errors.Is must not match the cause
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// explain adds advice to an error where the server's own text has none, and removes the lease
// IDs of the call, which the server's text may quote.
func explain(err error, ids []string, namespace string) error {
	var reply mongo.ServerError
	if errors.As(err, &reply) {
		return redactIDs(addAdvice(err, namespace), ids)
	}
	return addAdvice(err, namespace)
}

// withoutDetails drops the server's details of a document that failed validation. They may
// quote the lease ID of another program.
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

func addAdvice(err error, namespace string) error {
	if selection := unreachable(err); selection != nil {
		return selection
	}
	switch {
	case hasCode(err, codeUnauthorized):
		return fmt.Errorf("the user lacks a privilege on %s: %w; grant it the role readWrite", namespace, err)
	case hasCode(err, codeAuthenticationFailed):
		return fmt.Errorf("%w; check user, password and authSource", err)
	case strings.Contains(err.Error(), "requires at least"): // the Go driver's text for a server that is too old
		return fmt.Errorf("the server is older than MongoDB 4.4: %w", err)
	default:
		return err
	}
}

// redactIDs removes lease IDs from an error's text. The result then wraps nothing, because the
// wrapped errors show the ID, too. An ID shorter than 8 bytes is no secret: any text may
// contain it.
func redactIDs(err error, ids []string) error {
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
