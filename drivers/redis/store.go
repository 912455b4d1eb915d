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
// Promise 1: the server runs the whole script before any other request.
var putScript = goredis.NewScript(`
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

// valueOf is the value of a GET, at a time of the server before.
func valueOf(got *goredis.StringCmd, now time.Time) (cas.Value, error) {
	data, err := got.Result()
	if errors.Is(err, goredis.Nil) {
		return cas.Value{Now: now}, nil
	}
	if err != nil {
		return cas.Value{}, err
	}
	return cas.Value{Data: []byte(data), Version: versionOf(data), Now: now}, nil
}

// Get implements [cas.Store]. It needs the right to GET and TIME alone.
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	return do(ctx, s, func(ctx context.Context) (cas.Value, error) {
		pipe := s.client.Pipeline()
		now, got := pipe.Time(ctx), pipe.Get(ctx, s.key(key))
		if err := cmp.Or(exec(ctx, pipe), now.Err()); err != nil {
			return cas.Value{}, err
		}
		return valueOf(got, now.Val())
	})
}

// GetBatch implements [cas.BatchGetter].
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	return do(ctx, s, func(ctx context.Context) ([]cas.Value, error) {
		pipe := s.client.Pipeline()
		now, got := pipe.Time(ctx), make([]*goredis.StringCmd, len(keys))
		for i, key := range keys {
			got[i] = pipe.Get(ctx, s.key(key))
		}
		values := make([]cas.Value, len(keys))
		err := cmp.Or(exec(ctx, pipe), now.Err())
		for i := 0; i < len(keys) && err == nil; i++ {
			values[i], err = valueOf(got[i], now.Val())
			if errors.Is(classify(err), driver.ErrDamaged) {
				values[i], err = cas.Value{Version: "no string", Now: now.Val()}, nil // it has no data, and counts as damaged
			}
		}
		return values, err
	})
}

// Put implements [cas.Store]. With replicas it is one round trip, too.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	return do(ctx, s, func(ctx context.Context) (cas.Written, error) {
		args := []any{version, data, s.channel(key)}
		pipe := s.client.Pipeline()
		written := putScript.EvalSha(ctx, pipe, []string{s.key(key)}, args...)
		confirmed := s.addWait(ctx, pipe)
		err := exec(ctx, pipe)
		if err == nil && goredis.HasErrorPrefix(written.Err(), "NOSCRIPT") {
			_ = confirmed() // it may have got the number of replicas
			pipe = s.client.Pipeline()
			written = putScript.Eval(ctx, pipe, []string{s.key(key)}, args...)
			confirmed = s.addWait(ctx, pipe)
			err = exec(ctx, pipe)
		}
		notSafe := confirmed()
		if err = cmp.Or(err, written.Err()); err != nil {
			return cas.Written{}, err
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

// scanCount is how many keys the server looks at for one page.
const scanCount = 500

// List implements [cas.Store]. A page is the cursor of a SCAN.
func (s *store) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	type listed struct {
		items []cas.Item
		next  string
	}
	l, err := do(ctx, s, func(ctx context.Context) (listed, error) {
		var cursor uint64
		if page != "" {
			var err error
			if cursor, err = strconv.ParseUint(page, 10, 64); err != nil {
				return listed{}, fmt.Errorf("the page %s is no cursor", driver.Quote(page))
			}
		}
		found, cursor, err := s.client.Scan(ctx, cursor, s.key(prefix)+"*", scanCount).Result()
		if err != nil {
			return listed{}, err
		}
		l := listed{items: make([]cas.Item, len(found))}
		if cursor != 0 {
			l.next = strconv.FormatUint(cursor, 10)
		}
		for i, key := range found {
			l.items[i].Key = strings.TrimPrefix(key, s.config.prefix)
		}
		if len(found) == 0 {
			return l, nil
		}
		pipe := s.client.Pipeline()
		now, got := pipe.Time(ctx), pipe.MGet(ctx, found...)
		if err := cmp.Or(exec(ctx, pipe), now.Err(), got.Err()); err != nil {
			return listed{}, err
		}
		for i, value := range got.Val() {
			if data, is := value.(string); is { // else it is gone, or no string: it is read when it is needed
				l.items[i].Value = cas.Value{Data: []byte(data), Version: versionOf(data), Now: now.Val()}
			}
		}
		return l, nil
	})
	return l.items, l.next, err
}
