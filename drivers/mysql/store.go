package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
)

// versionOf is what the server calls SHA2(value, 256). A version in a column beside the value would hide an edit by hand.
func versionOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// literal is a string of bytes in SQL. It needs no escapes, so no mode and no character set changes its meaning, and a statement with it is
// one request: a prepared statement would be two.
func literal(text string) string { return "X'" + hex.EncodeToString([]byte(text)) + "'" }

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	r, err := s.read(ctx, func(table string) string { return table + " AS l ON l.name = " + literal(key) })
	if err != nil || len(r.items) == 0 {
		return cas.Value{Now: r.now}, err
	}
	return r.items[0].Value, nil
}

// GetBatch implements [cas.BatchGetter].
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = literal(key)
	}
	r, err := s.read(ctx, func(table string) string { return table + " AS l ON l.name IN (" + strings.Join(names, ", ") + ")" })
	if err != nil {
		return nil, err
	}
	found := map[string]cas.Value{}
	for _, item := range r.items {
		found[item.Key] = item.Value
	}
	values := make([]cas.Value, len(keys))
	for i, key := range keys {
		values[i] = found[key]
		values[i].Now = r.now
	}
	return values, nil
}

// listPage is how many rows a page has at most. One with the most data takes 100 kB.
const listPage = 300

// List implements [cas.Store]. A page is the last key of the one before.
func (s *store) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	r, err := s.read(ctx, func(table string) string {
		return fmt.Sprintf("(SELECT name, value FROM %s WHERE name > %s AND name >= %s AND name < %s ORDER BY name LIMIT %d) AS l ON TRUE",
			table, literal(page), literal(prefix), literal(prefix+"\x7f"), listPage) // no key has a byte above 7e
	})
	if err != nil || len(r.items) < listPage {
		return r.items, "", err
	}
	return r.items, r.items[listPage-1].Key, nil
}

// reading is what a statement has read, with the server's time.
type reading struct {
	now   time.Time
	items []cas.Item
}

// read reads the rows of a table l, which join makes of the table of the locks. It refuses an answer that may be old, or is that of another
// table.
func (s *store) read(ctx context.Context, join func(table string) string) (reading, error) {
	return do(ctx, s, func(ctx context.Context, c session) (reading, error) {
		from := "(SELECT 1) AS one LEFT JOIN " + join(c.table)
		r, err := c.read(ctx, s, c.identity()+", l.name, l.value FROM "+from)
		if s.config.onlyReads && hasCode(err, codeNoTable) { // then all locks are free
			return c.read(ctx, s, "NULL, NULL, NULL")
		}
		return r, err
	})
}

// noLimit is more rows than a statement reads. Without it a session with sql_select_limit would take locks for free.
const noLimit = " LIMIT 1000000"

// read makes a statement whose last columns are the identity of the table, a key, and its value.
func (c session) read(ctx context.Context, s *store, rest string) (r reading, err error) {
	var micros int64
	var session behaviour
	var identity, key, value []byte
	seen := false
	columns := append(append([]any{&micros}, session.columns()...), &identity, &key, &value)
	err = c.query(ctx, c.reads()+clock+", "+c.manners()+", "+rest+noLimit, func() {
		if seen = true; key != nil {
			r.items = append(r.items, cas.Item{Key: string(key), Value: cas.Value{Data: value, Version: versionOf(value),
				Now: time.UnixMicro(micros)}})
		}
	}, columns...)
	r.now = time.UnixMicro(micros)
	switch {
	case err != nil:
		return reading{}, err
	case !seen:
		return reading{}, errAnswer
	}
	if err = session.refusal(s.config.onlyReads); err == nil {
		err = s.admit(string(identity))
	}
	if err != nil {
		return reading{}, err
	}
	return r, nil
}

// Put implements [cas.Store]. The server's time comes as the ID of the last insert, for which the statement sets it.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	var token uint64
	if p, ok := cas.ReadPresent(data); ok {
		token = p.Token
	}
	return do(ctx, s, func(ctx context.Context, c session) (cas.Written, error) {
		statement := c.update(key, data, token, version)
		if version == "" {
			statement = c.insert(key, data, token, s.known())
		}
		result, err := c.exec(ctx, statement)
		if hasCode(err, codeDuplicate, codeDeadlock, codeCertification) {
			return cas.Written{}, cas.ErrConflict // nothing of the statement was done
		}
		if err != nil {
			return cas.Written{}, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return cas.Written{}, err
		}
		if n == 0 && version == "" {
			// A key that has a value would be a duplicate. So the server has become read-only, or this is another table: a read says so. It
			// is made here, because other connections may lead elsewhere.
			if _, err := c.read(ctx, s, c.identity()+", NULL, NULL"); err != nil {
				return cas.Written{}, err
			}
		}
		if n == 0 { // or the server became read-only: the Locker reads, and that says so
			return cas.Written{}, cas.ErrConflict
		}
		done := cas.Written{Version: versionOf(data)}
		if micros, err := result.LastInsertId(); err == nil && micros > 0 {
			done.Now = time.UnixMicro(micros)
		}
		return done, nil
	})
}

// update is the statement that writes a value if the present one has the version. The server locks the row, and compares then.
//
// Promise 1: so of several writes with one version, one is done. No two values are equal, so a row that is found is a row that is changed,
// whichever of them the client counts.
func (k *server) update(key string, data []byte, token uint64, version string) string {
	return "UPDATE " + k.table + " SET value = " + literal(string(data)) + ", token = " + strconv.FormatUint(token, 10) +
		", written = LAST_INSERT_ID(" + clock + ") WHERE name = " + literal(key) + " AND SHA2(value, 256) = '" + quoteVersion(version) +
		"' AND " + k.writable()
}

// insert is the statement that writes a value if the key has none, and the table has the identity, unless that is not known.
//
// Promise 1: what was read before may be of another table, on a server to which another connection leads.
func (k *server) insert(key string, data []byte, token uint64, identity string) string {
	from := "DUAL WHERE "
	if identity != "" { // MySQL documents the table itself here, and refuses it in a subquery
		from = k.table + " AS t WHERE t.name = " + literal(identityKey) + " AND t.value = " + literal(identity) + " AND "
	}
	return "INSERT INTO " + k.table + " (name, token, written, value) SELECT " + literal(key) + ", " + strconv.FormatUint(token, 10) +
		", LAST_INSERT_ID(" + clock + "), " + literal(string(data)) + " FROM " + from + k.writable()
}

// identity is the column with the identity of the table.
func (k *server) identity() string {
	return "(SELECT value FROM " + k.table + " WHERE name = " + literal(identityKey) + ")"
}

// quoteVersion is a version as a part of a statement. One that is no hash, which the State of a lease may have, is that of no value.
func quoteVersion(version string) string {
	if _, err := hex.DecodeString(version); err != nil {
		return ""
	}
	return version
}
