package mongo

import (
	"context"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// checkup is one call of Check.
type checkup struct {
	driverutil.Report
	l *Locker

	hello      bson.Raw
	standalone bool
	router     bool   // the server is a mongos
	user       string // empty if the server knows no user of this connection
	userDB     string
	stopped    bool // no majority acknowledges a write
}

// What [Locker.Check] examines.
const (
	subjectReachable  = "primary"
	subjectServer     = "server"
	subjectConnection = "connection"
	subjectAccess     = "access control"
	subjectCollection = "collection"
	subjectWrite      = "majority write"
	subjectIndex      = "TTL index"
	subjectHints      = "hints"
	subjectForeign    = "foreign documents"

	subjectFind        = "privilege find"
	subjectInsert      = "privilege insert"
	subjectUpdate      = "privilege update"
	subjectListIndexes = "privilege listIndexes"
	subjectCreateIndex = "privilege createIndex"
	subjectHinting     = "privileges of hints"
)

// run runs the commands of one step.
func (c *checkup) run(ctx context.Context, commands func(context.Context) error) error {
	return c.l.run(ctx, op{verb: "check"}, commands)
}

// mend reports a fault, with the command in mongosh that mends it.
func (c *checkup) mend(subject string, level driver.Level, detail, remedy, command string) bool {
	c.Report(driver.Finding{Subject: subject, Level: level, Detail: detail, Remedy: remedy, Command: command})
	return true
}

// failed reports that a step got no answer. A missing right leaves it unchecked.
func (c *checkup) failed(subject string, level driver.Level, err error, remedy string) {
	if level != driver.LevelWrong && hasCode(err, codeUnauthorized) {
		level = driver.LevelUnchecked
	}
	c.Report(driver.Finding{Subject: subject, Level: level, Detail: plain(err), Remedy: remedy})
}

var refusedCommand = regexp.MustCompile(`not authorized on \S+ to execute command \{ \w+`)

// plain is an error's text. That of a missing right is cut: the server quotes the whole command.
func plain(err error) string {
	text := driver.ErrorText(err)
	if refused := refusedCommand.FindString(text); refused != "" {
		return strings.Replace(refused, "command { ", "", 1)
	}
	return text
}

func roundLatency(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}
