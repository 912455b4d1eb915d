package cas_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
)

// failingStore is a store whose reads or writes fail, when they should.
type failingStore struct {
	cas.Store
	reads, writes error
}

func (s *failingStore) Get(ctx context.Context, key string) (cas.Value, error) {
	if s.reads != nil {
		return cas.Value{}, s.reads
	}
	return s.Store.Get(ctx, key)
}

func (s *failingStore) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	if s.writes != nil {
		return cas.Written{}, s.writes
	}
	return s.Store.Put(ctx, key, data, version)
}

// A request that fails before its first write has changed nothing, whatever the store's error is. After a write, nobody knows: also if
// the store cannot be reached any more when the record is read again.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		store := &failingStore{Store: newStore()}
		try := func(what string, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}, ProbeRounds: -1})
			_, err := l.TryAcquire(ctx, driver.Request{Name: what, ID: driver.NewLeaseID(what), Owner: "o", TTL: time.Minute})
			if err == nil || driver.NotSent(err) != want || driver.OutcomeKnown(err) {
				t.Errorf("%s: not sent: %v: %v", what, driver.NotSent(err), err)
			}
		}
		store.reads = refused
		try("no read", true)
		store.reads, store.writes = nil, refused
		try("no write", false)
		store.writes = nil
		now := &faults{next: []castest.Fault{{Unanswered: true}}}
		inner := store.Store
		store.Store = castest.Faulty(t, inner, func() castest.Fault {
			store.reads = refused
			return now.draw()
		})
		try("the answer to a write is lost, and then the store", false)
	})
}
