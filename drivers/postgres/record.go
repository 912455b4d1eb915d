package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// toText makes a text of the database from a name or an owner: a text there has no zero byte. Order and prefixes are kept.
func toText(s string) string { return escaper.Replace(s) }

func fromText(s string) string { return unescaper.Replace(s) }

var (
	escaper   = strings.NewReplacer("\x00", "\x01\x01", "\x01", "\x01\x02")
	unescaper = strings.NewReplacer("\x01\x01", "\x00", "\x01\x02", "\x01")
)

// row is what a statement returns of a row: [fields], and then the version, the history and the data. It accepts what a
// lock cannot have, so that decode can say what is wrong.
type row struct {
	name, holder, owner           pgtype.Text
	token, ttl, renewals, writes  pgtype.Int8
	expires, acquired, renewedAt  pgtype.Timestamptz
	broken, emptied               pgtype.Bool
	queue, history, version, data []byte // nil for NULL
	now                           time.Time
}

func (r *row) targets(before ...any) []any {
	return append(before, &r.name, &r.token, &r.holder, &r.owner, &r.ttl, &r.expires, &r.acquired, &r.renewedAt, &r.renewals,
		&r.broken, &r.writes, &r.queue, &r.emptied, &r.now, &r.version, &r.history, &r.data)
}

// moment is a time of the server's clock.
func moment(now time.Time) lockstate.Moment {
	return lockstate.Moment{Elapsed: time.Duration(now.UnixNano()), Wall: now}
}

// tenure is a past holder in the column history.
type tenure struct {
	Owner string    `json:"owner"`
	Token uint64    `json:"token"`
	From  time.Time `json:"from,omitzero"` // or null, as is Until, if it is unknown
	Until time.Time `json:"until,omitzero"`
	End   string    `json:"end"`
}

// read returns the lock. A row that is damaged, or was written by another program, is an error that names the column
// and never counts as free.
func (r *row) read() (*read, error) {
	now := moment(r.now)
	bad := func(column, problem string) (*read, error) {
		return &read{now: now}, driver.Damaged(fmt.Errorf("the column %s of its row %s; correct or delete the row", column, problem))
	}
	finite := func(t pgtype.Timestamptz) bool {
		return t.Valid && t.InfinityModifier == pgtype.Finite && t.Time.Year() > 1970 && t.Time.Year() < 2200 // those that have a UnixNano
	}
	const longest = int64(math.MaxInt64 / time.Millisecond)
	for _, column := range []struct {
		name  string
		right bool
	}{
		{"token", r.token.Int64 > 0 && r.token.Int64 < math.MaxInt64}, // Promise 3: the next one must be greater
		{"ttl", r.ttl.Int64 > 0 && r.ttl.Int64 <= longest},
		{"expires", finite(r.expires)}, {"acquired_at", finite(r.acquired)}, {"renewed_at", finite(r.renewedAt)},
		{"renewals", r.renewals.Int64 >= 0}, {"writes", r.writes.Int64 >= 0},
	} {
		if !column.right {
			return bad(column.name, "is out of range")
		}
	}
	k := &lockstate.Lock{
		Holder: r.holder.String, Owner: fromText(r.owner.String), Token: uint64(r.token.Int64),
		TTL:     time.Duration(r.ttl.Int64) * time.Millisecond,
		Expires: time.Duration(r.expires.Time.UnixNano()), AcquiredAt: r.acquired.Time, RenewedAt: r.renewedAt.Time,
		Renewals: uint64(r.renewals.Int64), Broken: r.broken.Bool, Writes: uint64(r.writes.Int64), Emptied: r.emptied.Bool, Data: r.data,
	}
	var err error
	if k.Queue, err = decodeQueue(r.queue); err != nil {
		return bad("queue", "is not a list of waiters")
	}
	var past []tenure
	if r.history != nil && json.Unmarshal(r.history, &past) != nil {
		return bad("history", "is not a list of past holders")
	}
	for _, p := range past {
		k.History = append(k.History, driver.Tenure{Owner: fromText(p.Owner), Token: p.Token, From: p.From, Until: p.Until, End: endOf(p.End)})
	}
	return &read{k, string(r.version), now}, nil
}

// decodeQueue returns the waiters of a column queue.
func decodeQueue(queue []byte) (all []lockstate.Waiter, err error) {
	if queue == nil {
		return nil, nil
	}
	if err = json.Unmarshal(queue, &all); err != nil {
		return nil, err
	}
	for _, w := range all {
		if w.ID == "" {
			return nil, errors.New("a waiter without an ID")
		}
	}
	return all, nil
}

// endOf is the end with a text.
func endOf(text string) driver.End {
	for e := driver.EndUnknown; e <= driver.EndFreed; e++ {
		if e.String() == text {
			return e
		}
	}
	return driver.EndUnknown
}

// values are the arguments of a statement that writes a lock: from the column holder on.
func values(k *lockstate.Lock, keep int) []any {
	k.KeepHistory(keep)
	var queue any
	if len(k.Queue) > 0 {
		queue = mustJSON(k.Queue)
	}
	past := make([]tenure, len(k.History))
	for i, t := range k.History {
		past[i] = tenure{Owner: toText(t.Owner), Token: t.Token, From: t.From, Until: t.Until, End: t.End.String()}
	}
	return []any{k.Holder, toText(k.Owner), int64(k.Token), k.TTL.Milliseconds(), time.Unix(0, int64(k.Expires)), k.AcquiredAt, k.RenewedAt,
		int64(k.Renewals), k.Broken, int64(k.Writes), queue, k.Emptied, mustJSON(past), k.Data}
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // these types have nothing that JSON lacks
	}
	return string(text)
}
