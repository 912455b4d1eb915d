package mongo

import (
	"errors"
	"fmt"
	"regexp"
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
	codeMaxTimeMSExpired          = 50
	codeCommandNotFound           = 59
	codeWriteConcernTimeout       = 64
	codeInvalidNamespace          = 73
	codeUnknownWriteConcern       = 79
	codeIndexOptionsConflict      = 85
	codeIndexKeyConflict          = 86
	codeShutdownInProgress        = 91
	codeUnsatisfiableWriteConcern = 100
	codeCommandNotSupported       = 115
	codeDocumentValidationFailure = 121
	codePrimarySteppedDown        = 189
	codeNoQueryPlan               = 291 // of the parameter notablescan
	codeAPIStrict                 = 323
	codeNotWritablePrimary        = 10107
	codeInterruptedAtShutdown     = 11600
	codeInterruptedByStateChange  = 11602
)

// addCause adds the cause of a context's end to an error. The context may belong to another
// lock's hold, and its cause, such as [driver.ErrLost], is then the outcome of that lock. Such
// a cause is added as text only, so that errors.Is does not match it.
func addCause(err, cause error) error {
	if driver.OutcomeKnown(cause) {
		// Promise 4: the loss of another lock is no loss of this one.
		return driver.Errorf("%w (%s)", err, driver.ErrorText(cause))
	}
	return driver.Errorf("%w (%w)", err, cause)
}

// explain adds advice to an error where the server's own text has none, and removes the lease
// IDs of the call, which the server's text may quote.
func explain(err error, ids []string, namespace string) error {
	var reply mongo.ServerError
	if errors.As(err, &reply) {
		return redactIDs(err, addAdvice(err, namespace), ids)
	}
	return addAdvice(err, namespace)
}

// afterWriteError is the failure of a command after a write that may have been applied.
type afterWriteError struct{ error }

func (e *afterWriteError) Unwrap() error { return e.error }

// unsentError is the error of the first command of a call, which certainly never left the process.
type unsentError struct{ error }

// onceError is an error of the Go driver without the repetition in its text.
type onceError struct {
	text string
	err  error
}

func (e *onceError) Error() string { return e.text }
func (e *onceError) Unwrap() error { return e.err }

// sayOnce shortens the text of a failure of the network. The Go driver makes it of a message and the cause, which have the same
// text, after a space for the name of a server's error.
func sayOnce(err error) error {
	var failed mongo.CommandError
	if !errors.As(err, &failed) || failed.Message == "" || failed.Name != "" {
		return err
	}
	text := driver.ErrorText(err)
	once := strings.Replace(text, " "+failed.Message+": "+failed.Message, failed.Message, 1)
	if once == text {
		return err
	}
	return &onceError{once, err}
}

// withoutDetails drops the server's details of a document that failed validation. They may
// quote the lease ID of another program.
func withoutDetails(err error) error {
	var reply mongo.CommandError
	if errors.As(err, &reply) && reply.Code == codeDocumentValidationFailure {
		reply.Raw = nil
		return reply
	}
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

// redactIDs removes lease IDs from the text of an error with advice. If the server's error has one, the result wraps nothing,
// because the wrapped errors show the ID, too. An ID shorter than 8 bytes is no secret: any text may contain it.
func redactIDs(err, advised error, ids []string) error {
	const secret = 8
	text, found := driver.ErrorText(advised), false
	for _, id := range ids {
		if len(id) >= secret {
			found = found || strings.Contains(err.Error(), id)
			text = strings.ReplaceAll(text, id, "(lease ID)")
		}
	}
	if found || text != driver.ErrorText(advised) {
		return errors.New(text)
	}
	return advised
}

// interruptedByFailOver reports whether a command may have failed only because the member is no longer the primary,
// or was killed.
func interruptedByFailOver(err error) bool {
	return mongo.IsNetworkError(err) || hasCode(err, codeShutdownInProgress, codePrimarySteppedDown, codeNotWritablePrimary,
		codeInterruptedAtShutdown, codeInterruptedByStateChange)
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

func addAdvice(err error, namespace string) error {
	if selection := unreachable(err); selection != nil {
		return selection
	}
	switch {
	case hasCode(err, codeUnauthorized):
		return denied(err, namespace)
	case refusedByRule(err):
		return adviseRule(err, namespace)
	case hasCode(err, codeAuthenticationFailed):
		return driver.Errorf("%w; check user, password and authSource", err)
	case strings.Contains(err.Error(), "requires at least"): // the Go driver's text for a server that is too old
		return driver.Errorf("the server is older than MongoDB 4.4: %w", err)
	default:
		return sayOnce(err)
	}
}

// deniedError: the user lacks a privilege, or is not logged in. The server's own text repeats the command, which has up to 2 kB.
type deniedError struct {
	text string
	err  error
}

func (e *deniedError) Error() string { return e.text }

func (e *deniedError) Unwrap() error { return e.err }

var (
	// deniedCommand finds the command in the server's text.
	deniedCommand = regexp.MustCompile(`to execute command \{ (\w+):`)
	// actionsOf are the actions that a command of this driver needs, by its name.
	actionsOf = map[string]string{
		"find": "find", "aggregate": "find", "getMore": "find", "count": "find",
		"findAndModify": "find, insert and update", "update": "insert and update", "insert": "insert", "delete": "remove",
		"listIndexes": "listIndexes", "createIndexes": "createIndex", "create": "createCollection", "collStats": "collStats",
		"drop": "dropCollection", "bulkWrite": "insert and update",
	}
)

// denied describes an answer that the user may not do something.
func denied(err error, namespace string) error {
	var answer mongo.ServerError
	var described *deniedError
	if !errors.As(err, &answer) || errors.As(err, &described) {
		return err
	}
	text := answer.Error()
	if requiresLogin(err) {
		return &deniedError{"the server requires a login: give user and password, such as " +
			"mongodb://USER:PASSWORD@HOSTS/DATABASE?authSource=admin", err}
	}
	needs, role := "", "readWrite"
	if found := deniedCommand.FindStringSubmatch(text); found != nil {
		needs = fmt.Sprintf(" for the command %s", found[1])
		if actions := actionsOf[found[1]]; actions != "" {
			needs = fmt.Sprintf(": %s is missing", actions)
			if strings.Contains(actions, " and ") {
				needs = fmt.Sprintf(": one of %s is missing", actions)
			}
			if actions == "find" {
				role = "read"
			}
		}
	}
	database, _, _ := strings.Cut(namespace, ".")
	return &deniedError{fmt.Sprintf("the user lacks a privilege on %s%s; grant it the role %s on the database %q", namespace, needs, role,
		database), err}
}
