package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// Programs with redsync or redislock hold a lock by a key of its name, which they set if it is missing, with a value of their own and an
// expiry. They extend the expiry, and leave the value. A Locker with WithOldKeys has such a key, too, beside its record. One script
// compares and writes both, so neither kind of program takes what the other has.

// WithOldKeys names the key at which other programs hold the same lock, such as those with redsync or redislock: that is its name as a
// mutex there. For "" there is none. Both kinds of programs then exclude each other, so that a fleet moves in one rollout. All
// programs need the same function. Nothing reports that an old program has released the lock, so waiters poll, and have no order. There
// are no shared locks, and no Redis Cluster. A name has 150 bytes at most.
func WithOldKeys(key func(name string) string) Option {
	return func(c *config) { c.oldKeys, c.oldKey = true, key }
}

// oldScripts are the scripts of a store with old keys. KEYS[2] is the old one.
type oldScripts struct{ read, put *goredis.Script }

// readBoth begins each script. The version changes with both values, and with the expiry of the old key.
const readBoth = `
local time = redis.call('TIME')
local function version(record, old, ends)
  if not record and not old then return '' end
  return (record and redis.sha1hex(record) or '-') .. ':' ..
    (old and redis.sha1hex(old) .. '@' .. string.format('%.0f', ends) or '-')
end
local record, old, ends = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('PEXPIRETIME', KEYS[2])
`

func newOldScripts() *oldScripts {
	return &oldScripts{
		read: goredis.NewScript("#!lua flags=no-writes" + readBoth + `return {time[1], time[2], version(record, old, ends), record, old, ends}`),
		// ARGV: the version, the value, the channel, until when the lock is held, in milliseconds, and what the old key then has. The lock
		// is free if that time is 0, and -1 if another program holds it. Of a lease that is over already no old key is written: it counts as
		// free. The answer to a write that would free another program's lock has an empty version.
		//
		// Promise 1: no old key that another has set is replaced or deleted. What may be refused comes first: then nothing is written.
		put: goredis.NewScript("#!lua" + readBoth + `
local left = ARGV[4] - time[1] * 1000 - math.floor(time[2] / 1000)
if version(record, old, ends) ~= ARGV[1] or left > 0 and old and old ~= ARGV[5] then return {time[1], time[2]} end
if ARGV[4] == '0' and old and old ~= ARGV[5] then return {time[1], time[2], ''} end
if ARGV[4] == '0' then redis.call('DEL', KEYS[2])
elseif left > 0 then redis.call('SET', KEYS[2], ARGV[5], 'PXAT', ARGV[4]) end
redis.call('SET', KEYS[1], ARGV[2])
redis.pcall('PUBLISH', ARGV[3], '')
return {time[1], time[2], version(ARGV[2], redis.call('GET', KEYS[2]), redis.call('PEXPIRETIME', KEYS[2]))}`),
	}
}

// ourMark is what an old key has while the lock of a record is held. Two locks that have one old key exclude each other, too. It
// begins as no token does: one of redislock takes a lock whose value begins with it.
func (s *store) ourMark(key string) string { return "\x00held by Holdfast: " + s.key(key) }

// oldKey returns the old key of a lock. is is false if there is none.
func (s *store) oldKey(key string) (old string, is bool, err error) {
	if s.old == nil {
		return "", false, nil
	}
	name, ok := lockrecord.NameOfKey(key)
	switch {
	case lockrecord.IsLong(key):
		return "", false, driver.Denied(errors.New("with old keys, a name has 150 bytes at most when its characters other than a–z, 0–9, - " +
			"and _ are written as %xx"))
	case !ok: // it is no lock's
		return "", false, nil
	}
	old = s.config.oldKey(name)
	if strings.HasPrefix(old, s.config.prefix) {
		return "", false, driver.Denied(errors.New("the old key " + driver.Quote(old) +
			" begins as the keys of this program: use another prefix"))
	}
	return old, old != "", nil
}

// runOld runs a script on the record and the old key of a lock. It returns what an answer has at least: the time.
func (s *store) runOld(ctx context.Context, script *goredis.Script, key, old string, reads bool, args ...any) (answer []any,
	now time.Time, notSafe, err error) {
	run, keys := script.EvalSha, []string{s.key(key), old}
	var done *goredis.Cmd
	confirmed := func() error { return nil }
	send := func() error {
		return s.send(ctx, s.key(key), reads, func(b batch) goredis.Cmder {
			_ = confirmed() // it may have got the number of replicas
			if done = run(ctx, b.pipe, keys, args...); !reads {
				confirmed = s.addWait(ctx, b, key)
			}
			return done
		})
	}
	err = send()
	if err == nil && goredis.HasErrorPrefix(done.Err(), "NOSCRIPT") {
		run = script.Eval
		err = send()
	}
	notSafe = confirmed()
	if err == nil {
		answer, err = done.Slice()
	}
	if err == nil {
		now, _, err = readAnswer(answer[:min(2, len(answer))])
	}
	return answer, now, notSafe, err
}

// getOld is get for a lock with an old key.
func (s *store) getOld(ctx context.Context, key, old string) (cas.Value, error) {
	answer, now, _, err := s.runOld(ctx, s.old.read, key, old, true)
	if err != nil {
		return cas.Value{}, err
	}
	if len(answer) != 6 {
		return cas.Value{}, errAnswer
	}
	v := cas.Value{Now: now}
	v.Version, _ = answer[2].(string)
	record, _ := answer[3].(string)
	if record != "" {
		v.Data = []byte(record)
	}
	value, held := answer[4].(string)
	ends, _ := answer[5].(int64)
	present, _ := cas.ReadPresent(v.Data)
	switch end := present.RenewedAt.Add(present.TTL); {
	case held && (value != s.ourMark(key) || record == ""): // without a record, nothing else says who holds the lock
		v.Other = otherAt(old, value, ends, now)
	case held || present.Shared || present.Held && !present.Other && end.After(now): // also if somebody has deleted the key
	case present.Held:
		// Promise 1: the lease is over, and another program may have had the lock since: no late renewal gets it.
		if end.After(now) {
			end = now
		}
		v.Other = &cas.Other{RenewedAt: end}
	}
	return v, nil
}

// otherAt is the holder that an old key shows. ends is its expiry in milliseconds since 1970, or -1: then it is held until it is deleted.
//
// Promise 1: as long as the key is there, the lease counts as renewed just now. Its holder extends the key and leaves the value, and
// those that know the key alone wait until it is gone: so no waiter takes it over because it looks unchanged.
func otherAt(old, value string, ends int64, now time.Time) *cas.Other {
	ttl := driver.MaxTTL
	if ends >= 0 {
		ttl = max(time.Millisecond, min(ttl, time.UnixMilli(ends).Sub(now)))
	}
	// The value proves whose the lock is: it is not shown.
	return &cas.Other{Mark: fmt.Sprintf("%s@%d@%d", versionOf(value), ends, now.UnixNano()),
		Owner: "a program that uses the key " + driver.Quote(old), TTL: ttl, RenewedAt: now}
}

// atOnce is how many requests getEach makes at a time.
const atOnce = 16

// getEach is GetBatch for locks with old keys.
func (s *store) getEach(ctx context.Context, keys []string) ([]cas.Value, error) {
	values := make([]cas.Value, len(keys))
	errs := make([]error, len(keys))
	var work sync.WaitGroup
	for part := range atOnce {
		work.Go(func() {
			for i := part; i < len(keys) && errs[part] == nil; i += atOnce {
				if values[i], errs[part] = s.get(ctx, keys[i]); errors.Is(classify(errs[part]), driver.ErrDamaged) {
					values[i], errs[part] = cas.Value{Version: "no string", Now: time.Now()}, nil // it has no data, and counts as damaged
				}
			}
		})
	}
	work.Wait()
	return values, errors.Join(errs...)
}

// putOld is Put for a lock with an old key.
func (s *store) putOld(ctx context.Context, key, old string, data []byte, version string) (cas.Written, error) {
	until := int64(0)
	switch present, ok := cas.ReadPresent(data); {
	case !ok:
		return cas.Written{}, errors.New("the value is no lock's")
	case present.Other:
		until = -1
	case present.Held:
		until = present.RenewedAt.Add(present.TTL).UnixMilli() + 1
	}
	answer, now, notSafe, err := s.runOld(ctx, s.old.put, key, old, false, version, data, s.channel(key), strconv.FormatInt(until, 10),
		s.ourMark(key))
	switch {
	case err != nil:
		return cas.Written{}, err
	case len(answer) == 2:
		return cas.Written{}, cas.ErrConflict
	}
	next, _ := answer[2].(string)
	if next == "" {
		return cas.Written{}, driver.Denied(fmt.Errorf("a program that uses the key %s holds the lock: delete that key to free it",
			driver.Quote(old)))
	}
	return cas.Written{Version: next, Now: now}, notSafe
}
