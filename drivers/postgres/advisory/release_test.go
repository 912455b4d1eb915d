package advisory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/migrating"
)

// A renewal that waits for the connection is lost at once when the release begins: that keeps the connection for good.
func TestRenewalThatMeetsARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claim := migrating.Claim{Name: "job", Proof: "a", TTL: time.Minute}
		s := newSession(nil)
		s.busy <- struct{}{} // another call uses it
		l := &Lock{held: map[string]*session{claim.Proof: s}}
		ended := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			ended <- l.Renew(ctx, claim)
		}()
		synctest.Wait()
		began := time.Now()
		l.take(claim.Proof) // as Release does first
		if err := <-ended; !errors.Is(err, driver.ErrLost) || time.Since(began) != 0 {
			t.Errorf("the renewal ended %v after the release began: %v", time.Since(began), err)
		}
	})
}
