package scalesim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/plan"
)

// modelledGroup is a group most of whose members are only modelled, because one machine does not
// have the memory for all of them. A modelled member holds its locks in the store for an hour, and does
// what the plan says, a second after each change of the members. So the real instances meet records
// as of a group in which all are real.
type modelledGroup struct {
	*group
	locker  *memory.Locker
	members []string // of the model
	owned   map[string][]driver.Lease
	names   []string // of all partitions
}

const modelledTTL = time.Hour

func newModelledGroup(tb testing.TB, members, n int) *modelledGroup {
	tb.Helper()
	m := &modelledGroup{group: newGroup(tb, newBackend(), "group", n), owned: map[string][]driver.Lease{}}
	m.locker = m.backend.store.Locker()
	for i := range members {
		owner := fmt.Sprintf("modelled/%d#%012d", i, i)
		m.members = append(m.members, owner)
		m.acquire(owner, fmt.Sprintf("group/partition-member-%04d", i))
	}
	for i := range n {
		m.names = append(m.names, fmt.Sprintf("group/partition-%04d", i))
		owner := m.members[i*members/n]
		m.owned[owner] = append(m.owned[owner], m.acquire(owner, m.names[i]))
	}
	return m
}

func (m *modelledGroup) acquire(owner, name string) driver.Lease {
	m.tb.Helper()
	id := driver.NewLeaseID(fmt.Sprintf("%s/%s", owner, name))
	lease, err := m.locker.TryAcquire(context.Background(), driver.Request{Name: name, ID: id, Owner: owner, TTL: modelledTTL})
	if err != nil {
		m.tb.Fatal(err)
	}
	return lease
}

// act lets the modelled members do what the plan says: those with more than their share release
// partitions, and then those with less acquire free ones.
func (m *modelledGroup) act() {
	m.tb.Helper()
	all, owners := m.records()
	shares := plan.New("", all, owners).Shares
	for _, member := range m.members {
		for len(m.owned[member]) > shares[member] {
			last := len(m.owned[member]) - 1
			if err := m.locker.Release(context.Background(), m.owned[member][last]); err != nil {
				m.tb.Fatal(err)
			}
			m.owned[member] = m.owned[member][:last]
		}
	}
	all, owners = m.records()
	for _, member := range m.members {
		if len(m.owned[member]) < shares[member] {
			for _, i := range plan.New(member, all, owners).Take {
				m.owned[member] = append(m.owned[member], m.acquire(member, m.names[i]))
			}
		}
	}
}

// records returns the members, and the owner of each partition.
func (m *modelledGroup) records() (members, owners []string) {
	owner := func(name string) string {
		r, err := m.locker.Inspect(context.Background(), name)
		if err != nil {
			m.tb.Fatal(err)
		}
		if r.State == driver.StateFree {
			return plan.Nobody
		}
		return r.Owner
	}
	members = append(members, m.members...)
	for i := len(m.members); i < len(m.members)+len(m.all)+8; i++ { // newcomers choose among the first free ones
		if o := owner(fmt.Sprintf("group/partition-member-%04d", i)); o != plan.Nobody {
			members = append(members, o)
		}
	}
	for _, name := range m.names {
		owners = append(owners, owner(name))
	}
	return members, owners
}

// untilShared returns how long it takes until the real instances have their shares, with the
// modelled members acting each second.
func (m *modelledGroup) untilShared() phase {
	m.tb.Helper()
	moves := m.moves.Load()
	var p phase
	p = m.backend.measure(func() {
		for begin := time.Now(); !m.shared(); {
			if time.Since(begin) > 10*time.Minute {
				m.tb.Fatal("not shared after ten minutes")
			}
			time.Sleep(time.Second)
			m.act()
		}
	})
	p.moves = m.moves.Load() - moves
	return p
}

// shared reports whether no partition is free, and the real instances have even shares.
func (m *modelledGroup) shared() bool {
	members := len(m.members)
	sum := 0
	for _, owned := range m.owned {
		sum += len(owned)
	}
	for _, in := range m.all {
		if in.gone {
			continue
		}
		members++
		sum += int(in.works.Load())
	}
	for _, in := range m.all {
		if n := int(in.works.Load()); !in.gone && (n < m.n/members || n > m.n/members+1) {
			return false
		}
	}
	return sum == m.n
}

// TestPartitionsInALargeGroup measures single instances in a group of a thousand.
func TestPartitionsInALargeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members, n := size(998, 98), size(10_000, 1000)
		m := newModelledGroup(t, members, n)
		empty := memoryUsed()
		m.join(2)
		join := m.untilShared()
		memory := (memoryUsed() - empty) / 2
		idle := m.backend.measure(func() { time.Sleep(time.Minute) })
		m.all[0].crash()
		m.all[0].gone = true
		crash := m.untilShared()
		t.Logf("2 join %d members with %d partitions: %v", members, n, join)
		t.Logf("idle: %v; %d KiB for each instance", idle, memory>>10)
		t.Logf("one crashes: %v", crash)
		m.end()
		if reads := 2 * 2 * 15 * (2*int64(n)/1000 + 1); idle.used.reads > reads {
			t.Errorf("%d reads in a minute, more than %d", idle.used.reads, reads)
		}
		if crash.took > time.Minute {
			t.Errorf("the partitions of a crashed instance have owners after %v", crash.took)
		}
	})
}
