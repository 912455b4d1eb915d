package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// servers are those of a deployment: one primary, or the primaries of a cluster.
type servers interface {
	// primaryOf returns a client of the primary that has a key.
	primaryOf(ctx context.Context, key string) (*goredis.Client, error)
	// primaries returns a client of each primary, and a text that changes when keys move between them.
	primaries(ctx context.Context) (all []*goredis.Client, layout string, err error)
	// some returns a client of any server, without a request.
	some() *goredis.Client
	// replicasOf returns what is known of the replicas of the primary to which a client leads.
	replicasOf(to *goredis.Client) *replicaCount
	// heed draws the conclusions from an error of a server. instead is the client of the one that must be asked, if the error says
	// so, and nothing was done; asking, that ASKING precedes the request.
	heed(from *goredis.Client, err error) (instead *goredis.Client, asking bool)
	// why is why no request has reached the primary since then, as far as that is known.
	why(since time.Time) error
	// close ends all connections, and what else uses them.
	close() error
}

// maxRedirects is how often a request goes to another server than was thought, before the caller waits and repeats it.
const maxRedirects = 3

// roleKey is a key that has no value. A server that takes no writes refuses to write it even so.
const roleKey = "~role"

var errReplica = errors.New("the server is a replica, which takes no writes, and may lag behind")

// batch is a pipeline of requests to one server.
type batch struct {
	to   *goredis.Client
	pipe goredis.Pipeliner
	ask  func() // called just before the request that is refused if another server has the key
}

// send sends requests to the server of a key in one pipeline, which add fills. add returns the request, if any, that the server refuses
// if another server has the key: then they go to that, and add is called again.
func (s *store) send(ctx context.Context, key string, reads bool, add func(batch) goredis.Cmder) error {
	client, err := s.servers.primaryOf(ctx, key)
	if err != nil {
		return err
	}
	for tries, asking := 0, false; ; tries++ {
		pipe := client.Pipeline()
		asked := add(batch{client, pipe, func() {
			if asking {
				pipe.Do(ctx, "ASKING")
			}
		}})
		role := s.askRole(ctx, pipe, reads)
		err := exec(ctx, pipe)
		refusal := err
		if refusal == nil {
			if asked != nil {
				refusal = asked.Err()
			}
			if goredis.HasErrorPrefix(role.Err(), readOnly) {
				refusal, err = role.Err(), errReplica
			}
		}
		var instead *goredis.Client
		if instead, asking = s.servers.heed(client, refusal); instead == nil || tries == maxRedirects {
			return err
		}
		client = instead
	}
}

// sendAll sends requests that read, in one pipeline for each server that has some of the keys. Each request has an error of its own.
// sendAll returns, for each key, the error of its server if that did not answer; the answers of the others count.
func (s *store) sendAll(ctx context.Context, keys []string, add func(pipe goredis.Pipeliner, group []int)) (errs []error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.timeout)
	defer cancel()
	errs = make([]error, len(keys))
	groups := map[*goredis.Client][]int{}
	for i, key := range keys {
		client, err := s.servers.primaryOf(ctx, s.key(key))
		switch {
		case err == nil:
			groups[client] = append(groups[client], i)
		case errors.Is(err, errNoOwner):
			errs[i] = err
		default:
			return slices.Repeat([]error{err}, len(keys))
		}
	}
	var work sync.WaitGroup
	for _, group := range groups {
		work.Go(func() {
			err := s.send(ctx, s.key(keys[group[0]]), true, func(b batch) goredis.Cmder {
				add(b.pipe, group)
				return nil
			})
			for _, i := range group {
				errs[i] = err
			}
		})
	}
	work.Wait()
	return errs
}

// isRedirect reports whether another server of the cluster has a key.
func isRedirect(err error) bool {
	return goredis.HasErrorPrefix(err, "MOVED ") || goredis.HasErrorPrefix(err, "ASK ")
}

// readOnly begins the refusal of a server that takes no writes.
const readOnly = "READONLY"

// askRole adds to requests that read one that a replica refuses. What it would answer may be old.
//
// A server that became a replica has closed no connection. In a cluster it refuses every request itself.
func (s *store) askRole(ctx context.Context, pipe goredis.Pipeliner, reads bool) goredis.Cmder {
	if !reads || s.config.onlyReads || s.config.cluster {
		return goredis.NewCmd(ctx)
	}
	return pipe.SetXX(ctx, s.key(roleKey), "", 0)
}

// checkServer is called for each new connection: it refuses a server that is of another kind than the URL says, or a replica, to a
// Locker that writes.
func (s *store) checkServer(then func(context.Context, *goredis.Conn) error) func(context.Context, *goredis.Conn) error {
	return func(ctx context.Context, conn *goredis.Conn) error {
		s.answered.Store(true)
		hello := goredis.NewCmd(ctx, "HELLO")
		_ = conn.Process(ctx, hello)
		answer, err := hello.Result()
		of := goredis.Error(nil)
		if err != nil && !errors.As(err, &of) {
			return err
		}
		switch mode, role := helloField(answer, "mode"), helloField(answer, "role"); {
		case err != nil: // there is no right to ask; then the requests show it
		case mode == "sentinel":
			err = driver.Denied(errors.New("it is a Sentinel: add the URL parameter " + paramMaster))
		case mode == "cluster" && !s.config.cluster:
			err = driver.Denied(errors.New("the server belongs to a Redis Cluster: add the URL parameter " + paramCluster +
				"=true, or give New a *redis.ClusterClient"))
		case mode == "standalone" && s.config.cluster:
			err = driver.Denied(errors.New("the server belongs to no Redis Cluster: leave out the URL parameter " + paramCluster +
				", or give New a *redis.Client"))
		case role == "replica" && !s.config.onlyReads && !s.config.cluster:
			err = errReplica
		}
		switch {
		case err != nil && !errors.As(err, &of):
			return fmt.Errorf("%w", err) // go-redis takes off one layer
		case then != nil:
			return then(ctx, conn)
		}
		return nil
	}
}

// helloField returns a text in the answer to HELLO: a map, or, from older protocols, a list.
func helloField(answer any, name string) string {
	switch answer := answer.(type) {
	case map[any]any:
		text, _ := answer[name].(string)
		return text
	case []any:
		for i := 0; i+1 < len(answer); i += 2 {
			if answer[i] == name {
				text, _ := answer[i+1].(string)
				return text
			}
		}
	}
	return ""
}
