package mongo

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

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
