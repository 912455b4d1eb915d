package redis

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// primary is a deployment with one primary, which Sentinel may name. It has one client at a time. When the server is no primary any
// more, another client replaces it: go-redis would use the connections that are open, also those to a former primary.
type primary struct {
	options   goredis.Options
	sentinels *sentinels // nil without Sentinel
	left      func()     // called when another client has replaced one
	replicas  replicaCount

	mu     sync.Mutex
	client *goredis.Client
	times  int // how often one has replaced another
	closed bool
}

func newPrimary(o goredis.Options, s *sentinels, left func()) *primary {
	p := &primary{options: o, sentinels: s, left: left, replicas: replicaCount{stays: true}}
	if s != nil {
		p.options.Dialer = s.dial
		s.saw = p.replicas.raise
		s.moved = func() { p.leave(p.some()) }
	}
	p.client = p.newClient()
	return p
}

func (p *primary) newClient() *goredis.Client {
	o := p.options // go-redis changes it
	return goredis.NewClient(&o)
}

func (p *primary) some() *goredis.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.client
}

func (p *primary) replicasOf(*goredis.Client) *replicaCount { return &p.replicas }

func (p *primary) why(since time.Time) error {
	if p.sentinels == nil {
		return nil
	}
	return p.sentinels.why(since)
}

func (p *primary) primaryOf(context.Context, string) (*goredis.Client, error) {
	if p.sentinels != nil {
		p.sentinels.askAgain()
	}
	return p.some(), nil
}

func (p *primary) primaries(ctx context.Context) ([]*goredis.Client, string, error) {
	_, err := p.primaryOf(ctx, "")
	p.mu.Lock()
	defer p.mu.Unlock()
	return []*goredis.Client{p.client}, strconv.Itoa(p.times), err
}

// heed leaves a server that has become a replica. The address may lead to the new primary by now.
func (p *primary) heed(from *goredis.Client, err error) (instead *goredis.Client, asking bool) {
	switch {
	case goredis.HasErrorPrefix(err, readOnly), goredis.HasErrorPrefix(err, "MASTERDOWN"):
		p.leave(from)
	case !errors.Is(err, goredis.ErrClosed):
		return nil, false
	}
	if now := p.some(); now != from {
		return now, false
	}
	return nil, false
}

// leave ends the connections of a client, and makes another one.
func (p *primary) leave(from *goredis.Client) {
	p.mu.Lock()
	is := p.client == from && !p.closed
	if is {
		p.client = p.newClient()
		p.times++
	}
	p.mu.Unlock()
	if is {
		_ = from.Close()
		p.left()
	}
}

func (p *primary) close() error {
	p.mu.Lock()
	p.closed = true
	client := p.client
	p.mu.Unlock()
	err := client.Close()
	if p.sentinels != nil {
		err = errors.Join(err, p.sentinels.close())
	}
	return err
}
