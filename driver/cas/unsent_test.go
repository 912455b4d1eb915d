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

// A request that fails before its first write has changed nothing, whatever the store's error is. After a write, nobody knows: also if
// the store cannot be reached any more when the record is read again.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		memory := newStore()
		store := cas.Store(memory)
		gone := func(context.Context, string) (cas.Value, error) { return cas.Value{}, refused }
		try := func(what string, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			l := open(t, store, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
			_, err := l.TryAcquire(ctx, request(what, what, time.Minute))
			if err == nil || driver.NotSent(err) != want || driver.OutcomeKnown(err) {
				t.Errorf("%s: not sent: %v: %v", what, driver.NotSent(err), err)
			}
		}
		memory.get = gone
		try("no read", true)
		memory.get, memory.put = nil, failing(refused)
		try("no write", false)
		memory.put = nil
		now := &faults{next: []castest.Fault{{Unanswered: true}}}
		store = castest.Faulty(t, memory, func() castest.Fault {
			memory.get = gone
			return now.draw()
		})
		try("the answer to a write is lost, and then the store", false)
	})
}
