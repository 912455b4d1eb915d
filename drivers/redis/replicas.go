package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// learnEvery is how often the number of replicas is asked for, by a request that goes with a write.
const learnEvery = 10 * time.Second

// majority is how many of so many replicas make a majority, together with their primary.
func majority(replicas int) int { return (replicas + 1) / 2 }

// expected is how many replicas there are.
func (s *store) expected() int {
	if s.config.replicas >= 0 {
		return s.config.replicas
	}
	return int(s.replicas.Load())
}

// addWait adds to the requests of a write what waits for the replicas, on the same connection. confirmed is called when they were sent, and
// says whether the write is safe, if it was done.
//
// A replica that is away may be the next primary. So what counts is how many there have been, not how many are connected.
func (s *store) addWait(ctx context.Context, pipe goredis.Pipeliner) (confirmed func() error) {
	var info *goredis.StringCmd
	if now := time.Now().UnixNano(); s.config.replicas < 0 && now-s.learnedAt.Load() > int64(learnEvery) {
		s.learnedAt.Store(now)
		info = pipe.Info(ctx, "replication")
	}
	var wait *goredis.Cmd
	needed := majority(s.expected())
	if needed > 0 {
		wait = pipe.Do(ctx, "WAIT", needed, (s.config.timeout / 2).Milliseconds())
	}
	return func() error {
		if info != nil {
			if s.sawReplicas(replicasIn(info.Val())); info.Err() != nil && !errors.Is(classify(info.Err()), driver.ErrDenied) {
				s.learnedAt.Store(0) // without the right to ask, none is known
			}
		}
		if now := majority(s.expected()); now > needed {
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
			return fmt.Errorf("%w: %d of %d replicas have confirmed it within %v, and %d must; if there are fewer replicas now, "+
				"set the URL parameter replicas, or start the program again; a cluster must be told to forget those that are gone",
				cas.ErrNotSafe, n, s.expected(), s.config.timeout/2, needed)
		}
		return nil
	}
}

// sawReplicas notes how many replicas a primary has.
func (s *store) sawReplicas(n int) {
	for {
		most := s.replicas.Load()
		if int64(n) <= most || s.replicas.CompareAndSwap(most, int64(n)) {
			return
		}
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
