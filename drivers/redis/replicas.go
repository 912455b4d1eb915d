package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// learnEvery is how often the number of replicas is asked for, by a request that goes with a write.
const learnEvery = 10 * time.Second

// majority is how many of so many replicas make a majority, together with their primary.
func majority(replicas int) int { return (replicas + 1) / 2 }

// replicaCount is how many replicas one primary has, as far as is known. A replica that is away may be the next primary: so those count
// that there are, not those that are connected.
type replicaCount struct {
	// stays says that nobody else knows of the replicas that are down. So the greatest number stays that was seen.
	stays     bool
	known     atomic.Int64
	connected atomic.Int64 // as the primary said last
	askedAt   atomic.Int64 // when it was asked, in nanoseconds since 1970
}

func (r *replicaCount) get() int { return int(max(r.known.Load(), r.connected.Load())) }

// saw notes how many replicas are connected.
func (r *replicaCount) saw(n int) {
	if r.connected.Store(int64(n)); r.stays {
		r.raise(n)
	}
}

// raise notes that there are so many replicas at least.
func (r *replicaCount) raise(n int) {
	for {
		known := r.known.Load()
		if int64(n) <= known || r.known.CompareAndSwap(known, int64(n)) {
			return
		}
	}
}

// expected is how many replicas the primary has to which a client leads.
func (s *store) expected(to *goredis.Client) int {
	if s.config.replicas >= 0 {
		return s.config.replicas
	}
	return s.servers.replicasOf(to).get()
}

// addWait adds to the requests of a write what waits for the replicas, on the same connection. confirmed is called when they were sent, and
// says whether the write is safe, if it was done. Writes that try the store wait for none: a fail-over may forget them, and a program
// must be able to start while replicas are missing.
func (s *store) addWait(ctx context.Context, b batch, key string) (confirmed func() error) {
	trial := strings.HasPrefix(key, cas.ProbeKey)
	var info *goredis.StringCmd
	count := s.servers.replicasOf(b.to)
	if now := time.Now().UnixNano(); s.config.replicas < 0 && now-count.askedAt.Load() > int64(learnEvery) {
		count.askedAt.Store(now)
		info = b.pipe.Info(ctx, "replication")
	}
	var wait *goredis.Cmd
	needed := majority(s.expected(b.to))
	if needed > 0 && !trial {
		wait = b.pipe.Do(ctx, "WAIT", needed, (s.config.timeout / 2).Milliseconds())
	}
	return func() error {
		switch {
		case info == nil:
		case info.Err() == nil:
			count.saw(replicasIn(info.Val()))
		case !errors.Is(classify(info.Err()), driver.ErrDenied): // without the right to ask, none is known
			count.askedAt.Store(0)
		}
		if trial {
			return nil
		}
		if now := majority(s.expected(b.to)); now > needed {
			return fmt.Errorf("%w: the server has replicas that were not known before", cas.ErrNotSafe)
		}
		if wait == nil {
			return nil
		}
		n, err := wait.Int()
		if err != nil { // a refusal to wait refuses no write
			return fmt.Errorf("%w: waiting for the replicas: %s", cas.ErrNotSafe, err.Error())
		}
		if n < needed {
			remedy := "set the URL parameter replicas, or start the program again"
			if s.config.cluster {
				remedy = "have all servers of the cluster forget those that are gone (CLUSTER FORGET)"
			}
			err := fmt.Errorf("%w: %d of %d replicas have confirmed it within %v, and %d must; if there are fewer replicas now, %s",
				cas.ErrNotSafe, n, s.expected(b.to), s.config.timeout/2, needed, remedy)
			_, _ = s.servers.heed(b.to, err) // that may have happened
			return err
		}
		return nil
	}
}

// replicasIn counts the replicas in an answer to INFO. A program that copies the data, such as "redis-cli --rdb", is among them,
// without a port: it can be no primary, and goes away.
func replicasIn(info string) (n int) {
	for line := range strings.SplitSeq(info, "\n") {
		name, facts, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, is := strings.CutPrefix(name, "slave")
		if _, err := strconv.Atoi(number); is && err == nil && !strings.Contains(facts, ",port=0,") {
			n++
		}
	}
	return n
}

// fieldOf returns a field of the answer to INFO, or "".
func fieldOf(info, name string) string {
	for line := range strings.SplitSeq(info, "\n") {
		if key, value, found := strings.Cut(strings.TrimSpace(line), ":"); found && key == name {
			return value
		}
	}
	return ""
}
