package mongo

import (
	"errors"
	"fmt"
	"regexp"
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
	codeIndexOptionsConflict      = 85
	codeIndexKeyConflict          = 86
	codeShutdownInProgress        = 91
	codeCommandNotSupported       = 115
	codeDocumentValidationFailure = 121
	codePrimarySteppedDown        = 189
	codeNoSuchTransaction         = 251
	codeNoQueryPlan               = 291 // of the parameter notablescan
	codeAPIStrict                 = 323
	codeNotWritablePrimary        = 10107
	codeInterruptedAtShutdown     = 11600
	codeInterruptedByStateChange  = 11602
)

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

// requiresLogin reports whether the server answered that a connection is not logged in: "Command find requires authentication". The
// text of a missing privilege repeats the command, in which a lock's name or owner can have any words.
func requiresLogin(err error) bool {
	var answer mongo.CommandError
	return errors.As(err, &answer) && answer.Code == codeUnauthorized && strings.HasSuffix(answer.Message, "requires authentication")
}

// isPermanent reports whether a retry is unlikely to help.
func isPermanent(err error) bool {
	return !requiresLogin(err) && hasCode(err, codeUnauthorized, codeCommandNotFound, codeInvalidNamespace, codeCommandNotSupported,
		codeNoQueryPlan, codeAPIStrict)
}

func connectError(err error) error {
	return &driver.OpError{Op: "connect", Backend: backend, Err: err}
}

// Somebody else may have given the collection rules that refuse the records of locks: a validator, or a unique index.

var duplicateIn = regexp.MustCompile(`index: (.+?)(?: collation: \{.*\})? dup key: \{`)

// uniqueIndexOf returns the name of the unique index that has refused a write, or "" if it was none or that on _id.
func uniqueIndexOf(err error) string {
	if !mongo.IsDuplicateKeyError(err) {
		return ""
	}
	found := duplicateIn.FindStringSubmatch(err.Error())
	if found == nil || found[1] == "_id_" {
		return ""
	}
	return found[1]
}

// refusedByRule reports whether a rule of somebody else has refused a record. It will do so again.
func refusedByRule(err error) bool {
	return hasCode(err, codeDocumentValidationFailure) || uniqueIndexOf(err) != ""
}

// adviseRule describes that.
func adviseRule(err error, namespace string) error {
	database, collection, _ := strings.Cut(namespace, ".")
	if name := uniqueIndexOf(err); name != "" {
		return &deniedError{fmt.Sprintf("the unique index %s of %s refuses the record: only that on _id may be unique; drop it in mongosh: %s",
			driver.Quote(name), namespace, mongosh(database, doc{field("dropIndexes", collection), field("index", name)})), err}
	}
	return &deniedError{fmt.Sprintf("the validator of %s refuses the record; remove it in mongosh: %s", namespace,
		dropValidator(namespace)), err}
}

// dropValidator returns the command in mongosh that removes the validator.
func dropValidator(namespace string) string {
	database, collection, _ := strings.Cut(namespace, ".")
	return mongosh(database, doc{field("collMod", collection), field("validator", doc{})})
}
