package mysql

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/serverurl"
)

// Numbers of the server's errors.
const (
	codeTableExists   = 1050
	codeDuplicate     = 1062
	codeSyntax        = 1064
	codeNoTable       = 1146
	codeLockTimeout   = 1205
	codeDeadlock      = 1213 // on a node of a Galera cluster also: another node was faster
	codeNoSavepoint   = 1305
	codeCertification = 3101 // in Group Replication: another member was faster
	codeLogin         = 1045
	codeNoPassword    = 1698
)

// readOnlyCodes are those of a server that takes no writes. It has done nothing. 1047 is that of a node without its Galera cluster.
var readOnlyCodes = []uint16{1047, 1290, 1792, 1836, 1874}

const notForLocks = "the table is not one for locks: see the driver's schema.sql"

// denials are the numbers of errors after which a person must change something. The statement was refused as a whole.
var denials = map[uint16]string{
	1021:           "make room on the server",
	1044:           "grant the user the right to the database",
	codeLogin:      "check user and password",
	codeNoPassword: "check user and password",
	1049:           "create the database, or correct its name",
	1054:           notForLocks,
	1114:           "make room on the server",
	1129:           "run FLUSH HOSTS on the server",
	1130:           "let the user log in from this machine",
	1142:           "grant the user SELECT, INSERT and UPDATE on the table",
	1143:           "grant the user SELECT, INSERT and UPDATE on the table",
	codeNoTable:    "make the table by the driver's schema.sql, or restart the program",
	1153:           "set max_allowed_packet to 1 MB or more on the server",
	1176:           notForLocks,
	1227:           "grant it",
	1251:           "use another authentication plugin for the user",
	1364:           notForLocks,
	1665:           "set binlog_format to ROW",
	1820:           "set a new password for the user",
	1862:           "set a new password for the user",
	3118:           "unlock the account",
	3159:           "use TLS: the URL parameter tls",
	4151:           "unlock the account",
}

var errAnswer = errors.New("the server's answer has another form")

func connectError(err error) error { return driverutil.OpError("connect", backend, "", err) }

// numberOf is the number of a server's error, or 0.
func numberOf(err error) uint16 {
	var answer *gomysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

func hasCode(err error, codes ...uint16) bool { return slices.Contains(codes, numberOf(err)) }

// readOnly marks the refusal of a server that takes no writes.
func readOnly(err error) error {
	if hasCode(err, readOnlyCodes...) {
		return fmt.Errorf("%w (error %d)", errReadOnly, numberOf(err))
	}
	return err
}

// configurations are errors of the client library that another try does not mend.
var configurations = []error{gomysql.ErrNoTLS, gomysql.ErrCleartextPassword, gomysql.ErrNativePassword, gomysql.ErrOldPassword,
	gomysql.ErrUnknownPlugin, gomysql.ErrOldProtocol}

// classify marks what a person must mend, and leaves out what the server quotes of the user, of names and of values.
func classify(err error) error {
	var answer *gomysql.MySQLError
	if untrusted := serverurl.Untrusted(err); untrusted != nil {
		return untrusted
	}
	switch {
	case errors.Is(err, sqldriver.ErrBadConn):
		return errors.New("the server has closed the connection")
	case errors.Is(err, gomysql.ErrInvalidConn):
		return errors.New("the connection was lost")
	case slices.ContainsFunc(configurations, func(c error) bool { return errors.Is(err, c) }):
		return driver.Denied(err)
	case !errors.As(err, &answer):
		return err
	}
	text := fmt.Sprintf("%s (error %d)", ofUser.ReplaceAllString(answer.Message, "the user"), answer.Number)
	switch answer.Number {
	case codeLogin, codeNoPassword:
		text = fmt.Sprintf("the server refused the login (error %d)", answer.Number)
	case codeSyntax:
		text = "the server does not understand a statement (error 1064): is it MySQL or MariaDB?" // the message has a part of it
	case codeDuplicate:
		text = "a key exists already (error 1062)"
	case codeLockTimeout:
		text = "another transaction has locked the row (error 1205)"
	}
	if help := denials[answer.Number]; help != "" {
		return driver.Denied(&serverError{text + "; " + help, answer})
	}
	return &serverError{text, answer}
}

// ofUser finds a user in a message.
var ofUser = regexp.MustCompile(`(user )?'[^']*'@'[^']*'`)

// serverError is an error of the server with another text.
type serverError struct {
	text string
	err  *gomysql.MySQLError
}

func (e *serverError) Error() string { return e.text }

// Unwrap returns the server's error.
func (e *serverError) Unwrap() error { return e.err }
