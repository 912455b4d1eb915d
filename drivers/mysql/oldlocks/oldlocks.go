// Package oldlocks holds locks of other programs in MySQL and MariaDB: the rows of ShedLock's table, and the named locks of GET_LOCK. They
// are old locks for package [github.com/holdfast-go/holdfast/migrating].
package oldlocks

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

// backend is the name of the driver for the new locks.
const backend = "mysql"

// takesWrites is the condition that a server is no replica. read_only is a number or a word.
const takesWrites = "CONCAT(@@global.read_only) IN ('0', 'OFF') AND @@global.innodb_read_only = 0"

var errReadOnly = errors.New("the server is read-only, as a replica is: old programs hold their locks on the primary")

// literal is a string in SQL. It needs no escapes, and is compared by the collation of the column that it meets.
func literal(text string) string { return "_utf8mb4 X'" + hex.EncodeToString([]byte(text)) + "'" }

const (
	codeDuplicate = 1062
	codeDeadlock  = 1213 // on a node of a Galera cluster also: another node was faster
)

func hasCode(err error, codes ...uint16) bool {
	var answer *gomysql.MySQLError
	return errors.As(err, &answer) && slices.Contains(codes, answer.Number)
}

// denials are errors after which a person must change something: rights, a table, a column, a value that a column cannot have, a name, or
// one that the column's character set cannot have (1267).
var denials = []uint16{1044, 1045, 1046, 1049, 1054, 1059, 1142, 1143, 1146, 1267, 1292, 1364, 1366, 1406, 3057, 4163}

// failed is the error of a statement. What the server refused was not done. Of a context that has ended the client may report no more than
// that the connection has.
func failed(ctx context.Context, what string, err error) error {
	var answer *gomysql.MySQLError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		refused := fmt.Errorf("%s: %s (error %d)", what, answer.Message, answer.Number)
		if hasCode(err, denials...) {
			return driver.Denied(refused)
		}
		return refused
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
