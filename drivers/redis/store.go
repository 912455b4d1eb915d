package redis

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // it is the hash that scripts have, and no two values are equal
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// putScript writes a value if the present one has the version, or if there is none and the version is empty. Otherwise it returns the
// present one. A write that nobody may publish is done all the same: then waiters poll.
//
// Promise 1: the server runs the whole script before any other request. By its first line a replica refuses it before it begins: it
// would compare an old value.
var putScript = goredis.NewScript(`#!lua
local time = redis.call('TIME')
local old = redis.call('GET', KEYS[1])
if (old and redis.sha1hex(old) or '') ~= ARGV[1] then return {time[1], time[2], old} end
redis.call('SET', KEYS[1], ARGV[2])
redis.pcall('PUBLISH', ARGV[3], #ARGV[2] <= 65536 and ARGV[2] or '')
return {time[1], time[2]}`)

// versionOf is what scripts call sha1hex. A version beside the data would hide an edit by hand.
func versionOf(data string) string {
	sum := sha1.Sum([]byte(data)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

func (s *store) key(key string) string { return s.config.prefix + key }

// channel is that on which the writes of a key are published. All databases share their channels.
func (s *store) channel(key string) string { return s.key(key) + "@" + strconv.Itoa(s.db) }

// Get implements [cas.Store]. A Locker that only reads needs the right to GET and TIME alone.
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	return do(ctx, s, true, func(ctx context.Context) (cas.Value, error) { return s.get(ctx, key) })
}

func (s *store) get(ctx context.Context, key string) (cas.Value, error) {
	old, is, err := s.oldKey(key)
	switch {
	case err != nil:
		return cas.Value{}, err
	case is:
		return s.getOld(ctx, key, old)
	}
	var r reading
	err = s.send(ctx, s.key(key), true, func(b batch) goredis.Cmder {
		r.now = b.pipe.Time(ctx)
		b.ask()
		r.got = b.pipe.Get(ctx, s.key(key))
		return r.got
	})
	if err != nil {
		return cas.Value{}, err
	}
	return r.value()
}

// GetBatch implements [cas.BatchGetter].
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	return do(ctx, s, true, func(ctx context.Context) ([]cas.Value, error) {
		if s.old != nil {
			return s.getEach(ctx, keys)
		}
		values, failed := make([]cas.Value, len(keys)), cas.BatchError{}
		for i, r := range s.getAll(ctx, keys) {
			v, err := r.value()
			switch {
			case isRedirect(err):
				v, err = s.get(ctx, keys[i])
			case errors.Is(classify(err), driver.ErrDamaged):
				v, err = cas.Value{Version: "no string", Now: r.now.Val()}, nil // it has no data, and counts as damaged
			}
			if values[i] = v; err != nil {
				failed[keys[i]] = s.unanswered(classify(err))
			}
		}
		if len(failed) > 0 {
			return values, failed
		}
		return values, nil
	})
}

// reading has the answers to the requests for a value. err is that of a server that did not answer.
type reading struct {
	now *goredis.TimeCmd
	got *goredis.StringCmd
	err error
}

func (r reading) value() (cas.Value, error) {
	if r.err != nil {
		return cas.Value{}, r.err
	}
	if err := r.now.Err(); err != nil {
		return cas.Value{}, err
	}
	data, err := r.got.Result()
	if errors.Is(err, goredis.Nil) {
		return cas.Value{Now: r.now.Val()}, nil
	}
	if err != nil {
		return cas.Value{}, err
	}
	return cas.Value{Data: []byte(data), Version: versionOf(data), Now: r.now.Val()}, nil
}

// getAll reads the values of keys.
func (s *store) getAll(ctx context.Context, keys []string) []reading {
	read := make([]reading, len(keys))
	errs := s.sendAll(ctx, keys, func(pipe goredis.Pipeliner, group []int) {
		now := pipe.Time(ctx)
		for _, i := range group {
			read[i].now, read[i].got = now, pipe.Get(ctx, s.key(keys[i]))
		}
	})
	for i, err := range errs {
		read[i].err = err
	}
	return read
}

// Put implements [cas.Store]. With replicas it is one round trip, too.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	return do(ctx, s, false, func(ctx context.Context) (cas.Written, error) {
		old, is, err := s.oldKey(key)
		switch {
		case err != nil:
			return cas.Written{}, err
		case is:
			return s.putOld(ctx, key, old, data, version)
		}
		script, args := putScript.EvalSha, []any{version, data, s.channel(key)}
		var written *goredis.Cmd
		confirmed := func() error { return nil }
		put := func(b batch) goredis.Cmder {
			_ = confirmed() // it may have got the number of replicas
			b.ask()
			written = script(ctx, b.pipe, []string{s.key(key)}, args...)
			confirmed = s.addWait(ctx, b, key)
			return written
		}
		err = s.send(ctx, s.key(key), false, put)
		if err == nil && goredis.HasErrorPrefix(written.Err(), "NOSCRIPT") {
			script = putScript.Eval
			err = s.send(ctx, s.key(key), false, put)
		}
		notSafe := confirmed()
		if err != nil {
			return cas.Written{}, err // without a primary, nothing was asked
		}
		answer, err := written.Slice()
		if err != nil {
			return cas.Written{}, err
		}
		now, present, err := readAnswer(answer)
		switch {
		case err != nil:
			return cas.Written{}, err
		case present != nil:
			return cas.Written{}, &cas.RefusedError{Present: cas.Value{Data: []byte(*present), Version: versionOf(*present), Now: now}}
		case len(answer) == 3:
			return cas.Written{}, cas.ErrConflict
		}
		return cas.Written{Version: versionOf(string(data)), Now: now}, notSafe
	})
}

// readAnswer reads the answer of the script: the time and, if the write was refused, the present value.
func readAnswer(answer []any) (now time.Time, present *string, err error) {
	texts := make([]string, len(answer))
	for i, part := range answer {
		text, is := part.(string)
		if texts[i] = text; is && i == 2 {
			present = &text
		}
	}
	if len(texts) < 2 {
		return now, nil, errAnswer
	}
	seconds, err1 := strconv.ParseInt(texts[0], 10, 64)
	micros, err2 := strconv.ParseInt(texts[1], 10, 64)
	if err1 != nil || err2 != nil {
		return now, nil, errAnswer
	}
	return time.Unix(seconds, micros*int64(time.Microsecond)), present, nil
}

// scanCount is how many keys a server looks at for one page.
const scanCount = 500

// List implements [cas.Store]. It passes over pages without keys for half of the time limit. A page is the number of a primary, the cursor
// of its SCAN, and the layout when the list began.
func (s *store) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	type listed struct {
		items []cas.Item
		next  string
	}
	l, err := do(ctx, s, true, func(ctx context.Context) (listed, error) {
		all, layout, err := s.servers.primaries(ctx)
		if err != nil {
			return listed{}, err
		}
		began, n, cursor := layout, 0, uint64(0)
		if page != "" {
			if _, err := fmt.Sscanf(page, "%d %d %q", &n, &cursor, &began); err != nil {
				return listed{}, fmt.Errorf("the page %s is no cursor", driver.Quote(page))
			}
		}
		if began != layout || n < 0 || n >= len(all) {
			return listed{}, errMoved
		}
		var found []string
		// Most keys may be those of other programs.
		for start := time.Now(); ; {
			if found, cursor, err = all[n].Scan(ctx, cursor, s.key(prefix)+"*", scanCount).Result(); err != nil {
				return listed{}, err
			}
			if len(found) > 0 || cursor == 0 || time.Since(start) > s.config.timeout/2 {
				break
			}
		}
		if cursor == 0 {
			n++
		}
		var l listed
		if n < len(all) {
			l.next = fmt.Sprintf("%d %d %q", n, cursor, layout)
		} else if _, after, err := s.servers.primaries(ctx); err != nil || after != layout {
			return listed{}, cmp.Or(err, errMoved)
		}
		keys := make([]string, len(found))
		for i, key := range found {
			keys[i] = strings.TrimPrefix(key, s.config.prefix)
		}
		l.items, err = s.items(ctx, keys)
		return l, err
	})
	return l.items, l.next, err
}

// errMoved fails a list that may have missed keys: those that moved between servers, and a cursor means nothing to another server.
var errMoved = errors.New("the servers have changed during the list: list again")

// items reads the values of keys that were listed.
func (s *store) items(ctx context.Context, keys []string) ([]cas.Item, error) {
	items := make([]cas.Item, len(keys))
	for i, key := range keys {
		items[i].Key = key
	}
	if s.old != nil {
		return items, nil // each is read with its old key
	}
	for i, r := range s.getAll(ctx, keys) {
		if r.err != nil {
			return nil, r.err
		}
		if v, err := r.value(); err == nil { // else it is no string, or has moved: it is read when it is needed
			items[i].Value = v
		}
	}
	return items, nil
}
