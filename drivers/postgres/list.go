package postgres

import (
	"context"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// listPage is how many rows one statement lists.
const listPage = 1000

// afterPrefix ends the names with a prefix: no name has so many of the last character.
var afterPrefix = strings.Repeat("\U0010FFFF", 1024/4+1)

// List implements [driver.Lister] with a statement for every 1,000 rows.
func (l *Locker) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var invalid error
		if !utf8.ValidString(prefix) {
			invalid = driver.Invalid("prefix", driver.Quote(prefix), "valid UTF-8")
		}
		for after, more := "", true; more; {
			var page []result
			err := l.do(ctx, "list", prefix, invalid, func(ctx context.Context, c *pgx.Conn) (err error) {
				page, err = l.records(ctx, c, "", l.sql.list, toText(after), toText(prefix), toText(prefix)+afterPrefix)
				return err
			})
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, r := range page {
				if after = r.record.Name; !yield(r.record, opError("list", after, r.err)) {
					return
				}
			}
			more = len(page) == listPage
		}
	}
}
