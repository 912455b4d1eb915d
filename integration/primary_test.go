package integration

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/env"
)

// The primary is killed (SIGKILL) again and again while clients add to a number
// under the lock. No addition is lost, no two clients are ever in at once, tokens
// rise, and additions go on after each kill.
func TestPrimaryKilled(t *testing.T) {
	t.Parallel()
	m := env.StartMongo(t, env.MongoOptions{})
	c := &counter{t: t}
	stop := c.contend(m.URL(t), 8, holdfast.WithTTL(10*time.Second))
	defer stop()
	c.more(20)
	for range 3 {
		member, err := m.Primary(within(t))
		env.Check(t, err)
		killed := time.Now()
		env.Check(t, m.Kill(within(t), member))
		c.more(1)
		t.Logf("member %d killed; an addition after %s", member, time.Since(killed).Round(time.Millisecond))
		c.more(20)
		env.Check(t, m.Restart(within(t), member))
	}
	stop()
	c.check()
}
