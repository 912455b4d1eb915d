package etcd

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// member is one of the addresses of a cluster.
type member struct {
	url  string // such as https://etcd1:2379
	name string // such as etcd1:2379, for errors

	// The mu of the members guards what follows.

	// known says that its latest answer was that of a member of this cluster, and that it has not failed since.
	known bool
	// connections are those for new requests.
	connections *connections
}

// members are the addresses of a cluster. One is asked until it fails. Then the next one is.
type members struct {
	all     []*member
	connect func() *connections // makes those to a member

	mu      sync.Mutex
	closed  bool
	current int
	cluster uint64 // that of the first answer, or 0
	// present ends when another member becomes the current one: so do the watches there.
	present context.Context //nolint:containedctx // it is that of what uses the current member
	end     context.CancelFunc
}

func newMembers(all []*member, connect func() *connections) *members {
	m := &members{all: all, connect: connect}
	for _, one := range all {
		one.connections = connect()
	}
	m.present, m.end = context.WithCancel(context.Background())
	return m
}

// order returns the members in the order in which they are asked, and what ends when that changes.
func (m *members) order() (all []*member, present context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(append(all, m.all[m.current:]...), m.all[:m.current]...), m.present
}

// leave notes that a member has failed. If there is another one, that becomes the current one.
func (m *members) leave(failed *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed.known = false
	if m.all[m.current] == failed && len(m.all) > 1 {
		m.move((m.current + 1) % len(m.all))
	}
}

// use returns the connections for a request to a member. done is called when it has ended.
func (m *members) use(one *member) (c *connections, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return one.connections, one.connections.use() // before they can be left
}

// silent notes that a member has not answered, on these connections. What has cut one of them has perhaps cut them all, so what uses them
// ends. That the earlier connections were silent, too, says nothing of the present ones.
func (m *members) silent(failed *member, c *connections) {
	m.mu.Lock()
	if failed.connections == c && !m.closed {
		failed.connections, failed.known = m.connect(), false
		if m.all[m.current] == failed {
			m.move((m.current + 1) % len(m.all))
		}
	}
	m.mu.Unlock()
	c.leave()
}

// hasAnswered reports whether a member of the cluster has.
func (m *members) hasAnswered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cluster != 0
}

// move makes another member the current one. With one member it only ends what uses it. mu is held.
func (m *members) move(to int) {
	m.current = to
	m.end()
	m.present, m.end = context.WithCancel(context.Background())
}

// stay notes that a member has answered after others had failed.
func (m *members) stay(answered *member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, one := range m.all {
		if one == answered && i != m.current {
			m.move(i)
		}
	}
}

// isKnown reports whether a member may be asked to write: another cluster must not be changed.
func (m *members) isKnown(one *member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return one.known
}

// note takes in the cluster ID of an answer.
//
// Promise 1: two clusters have two holders. The first cluster that answers is the one.
func (m *members) note(from *member, cluster uint64) error {
	if cluster == 0 {
		return errNoEtcd
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cluster == 0 {
		m.cluster = cluster
	}
	if from.known = m.cluster == cluster; !from.known {
		return driver.Denied(fmt.Errorf("%w, %x, and the locks are in %x: correct the addresses; if the cluster was replaced, start all "+
			"programs again", errOtherCluster, cluster, m.cluster))
	}
	return nil
}

// close ends what uses the current member, and the connections.
func (m *members) close() {
	var open []*connections
	m.mu.Lock()
	m.closed = true
	m.end()
	for _, one := range m.all {
		open = append(open, one.connections)
	}
	m.mu.Unlock()
	for _, c := range open {
		c.leave()
	}
}
