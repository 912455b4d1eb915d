package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// Programs with redsync or redislock hold a lock by a key of its name, which they set if it is missing, with a value of their own and an
// expiry. A Locker with WithOldKeys does so as well, beside its record, in the same script. So both exclude each other.

// WithOldKeys names the key at which other programs hold the same lock, such as those with redsync or redislock: that is its name as a
// mutex there. For "" there is none. Both kinds of programs then exclude each other, so that a fleet moves in one rollout. Nothing reports
// that such a program has released the lock, so waiters poll, and have no order; there are no shared locks, and no Redis Cluster.
func WithOldKeys(key func(name string) string) Option { return func(c *config) { c.oldKey = key } }

// ourMark is the value of an old key while a Locker holds the lock.
const ourMark = "held by Holdfast"

// oldScripts are the scripts of a store with old keys. KEYS[2] is the old one.
type oldScripts struct{ read, put *goredis.Script }

// What the scripts return as the version changes with both values.
const versionOfBoth = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function version(record, old)
  if not record and not old then return '' end
  return (record and redis.sha1hex(record) or '-') .. ':' .. (old and redis.sha1hex(old) or '-')
end
local record, old = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
`

func newOldScripts(onlyReads bool) *oldScripts {
	header := "#!lua"
	if onlyReads {
		header += " flags=no-writes"
	}
	return &oldScripts{
		read: goredis.NewScript(header + versionOfBoth +
			`return {time[1], time[2], version(record, old), record, old, old and redis.call('PTTL', KEYS[2])}`),
		// ARGV: the version, the value, the channel, and until when the lock is held, in milliseconds: 0 if it is not, and -1 if another
		// program holds it. Of a lease that is over the old key is left alone: it ends by itself, and may be another's.
		put: goredis.NewScript("#!lua" + versionOfBoth + `
if version(record, old) ~= ARGV[1] then return {time[1], time[2]} end
redis.call('SET', KEYS[1], ARGV[2])
local left = ARGV[4] - now
if ARGV[4] == '0' then redis.call('DEL', KEYS[2])
elseif left > 0 then redis.call('SET', KEYS[2], '` + ourMark + `', 'PX', left) end
redis.pcall('PUBLISH', ARGV[3], '')
return {time[1], time[2], version(ARGV[2], redis.call('GET', KEYS[2]))}`),
	}
}

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
		return s.send(ctx, s.key(key), reads, func(pipe goredis.Pipeliner, _ func()) goredis.Cmder {
			_ = confirmed() // it may have got the number of replicas
			if done = run(ctx, pipe, keys, args...); !reads {
				confirmed = s.addWait(ctx, pipe)
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
	mark, held := answer[4].(string)
	left, _ := answer[5].(int64) // -1: it has no expiry
	present, _ := cas.ReadPresent(v.Data)
	switch {
	case held && mark != ourMark:
		ttl := driver.MaxTTL
		if left >= 0 {
			ttl = max(time.Millisecond, time.Duration(left)*time.Millisecond)
		}
		// The value proves whose the lock is: it is not shown.
		v.Other = &cas.Other{Mark: versionOf(mark), Owner: "a program that uses the key " + old, TTL: ttl, RenewedAt: now}
	case present.Other: // its lease has ended; the turns of the waiters count from there
		end := present.RenewedAt.Add(present.TTL)
		if end.After(now) {
			end = now
		}
		v.Other = &cas.Other{RenewedAt: end}
	}
	return v, nil
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
	answer, now, notSafe, err := s.runOld(ctx, s.old.put, key, old, false, version, data, s.channel(key), strconv.FormatInt(until, 10))
	switch {
	case err != nil:
		return cas.Written{}, err
	case len(answer) == 2:
		return cas.Written{}, cas.ErrConflict
	}
	next, _ := answer[2].(string)
	return cas.Written{Version: next, Now: now}, notSafe
}
