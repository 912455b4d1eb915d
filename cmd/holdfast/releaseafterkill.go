package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/driver"
)

// heldLeases are the leases of a holdfast, which the releaser releases if it is killed. They have secrets, and are never printed or logged.
type heldLeases struct {
	Backend string // its URL
	Leases  []heldLease
}

type heldLease struct {
	Name, ID, Owner string
	Token           uint64
	TTL             time.Duration
	Mode            driver.Mode
}

// heldLeases returns the data with which the releaser releases a hold.
func (r *runner) heldLeases(hold held) ([]byte, error) {
	l := heldLeases{Backend: r.backend}
	for _, h := range hold.holds() {
		lease := h.Lease()
		l.Leases = append(l.Leases, heldLease{lease.Name, lease.ID.Reveal(), lease.Owner, lease.Token, lease.TTL, lease.Mode})
	}
	return json.Marshal(l)
}

// releaseAfterKill prepares that the locks are released if holdfast is killed, unless that is before --min-hold has passed.
func (r *runner) releaseAfterKill(command *child.Child, hold held) error {
	data, err := r.heldLeases(hold)
	if err != nil {
		return err
	}
	// A token alone is no mark: another lock can have the same.
	marks := []string{envName + "=" + hold.first.Name(), envOwner + "=" + hold.first.Lease().Owner,
		envToken + "=" + strconv.FormatUint(hold.first.Token(), 10)}
	return command.ReleaseAfterKill(data, marks, r.MinHold)
}

// holds returns the holds of all locks.
func (h held) holds() (all []*holdfast.Hold) {
	s, ok := h.lease.(several)
	if !ok {
		return []*holdfast.Hold{h.first}
	}
	for _, name := range s.Names() {
		all = append(all, s.Hold(name))
	}
	return all
}

// releaseAgain is how long after a failure the releaser tries again.
const releaseAgain = time.Second

// releaseLeases releases the locks of a killed holdfast, whose command has ended. It tries until ctx ends.
func releaseLeases(ctx context.Context, data []byte) {
	var l heldLeases
	if json.Unmarshal(data, &l) != nil {
		return
	}
	for {
		if err := l.release(ctx); err == nil || !passing(err) {
			return
		}
		select {
		case <-time.After(releaseAgain):
		case <-ctx.Done():
			return
		}
	}
}

// release releases the locks.
func (l heldLeases) release(ctx context.Context) error {
	locker, err := driver.Open(ctx, l.Backend)
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close(ctx) }()
	for _, lease := range l.Leases {
		// Promise 6: if the lease was lost meanwhile and another holds the lock, nothing is released.
		err = errors.Join(err, locker.Release(ctx, driver.Lease{Name: lease.Name, ID: driver.NewLeaseID(lease.ID), Owner: lease.Owner,
			Token: lease.Token, TTL: lease.TTL, Mode: lease.Mode, Contended: true}))
	}
	return err
}
