// Package cas makes a whole [driver.Locker] over any store that can compare and set: that writes a value only
// if it still has a given version. The versions may be ETags, generations, revisions or resource versions. A
// driver implements the three methods of [Store]; package cas has all else: leases, tokens, lost replies,
// contention, past holders, data, breaking, listing, and, where the store has a watch and a clock, waking and an
// order of waiters. Package [github.com/holdfast-go/holdfast/driver/lockstate] decides. Package
// [github.com/holdfast-go/holdfast/driver/cas/castest] makes a Store fail, for tests of a driver.
//
//	func open(ctx context.Context, rawURL string) (driver.Locker, error) {
//		store, err := newStore(rawURL)
//		if err != nil {
//			return nil, err
//		}
//		return cas.Open(ctx, store, cas.Config{Info: driver.Info{
//			Backend: "acme", Expiry: driver.ByServer, Failover: driver.GrantsSurvive}})
//	}
//
// # What is stored
//
// Each lock has one value, as JSON, under [lockrecord.Key] of its name. The value has the digest of the holder's
// lease ID, so a reader cannot act for the holder. It is never deleted, because the tokens of its name must
// rise: a record that is removed ([driver.Checker]) is marked so. A value that cannot be read, or is another's,
// is an error that matches [driver.ErrDamaged] and names the key. It is never overwritten.
//
// # Time
//
// Info.Expiry of the [Config] says who judges leases: the store's clock or this process, which observes them. All programs that use
// one store must be of the same kind; a record of the other kind is refused.
//
// With [driver.ByServer] the clock may step back by up to 5 s without any effect. After a larger step a lease can
// seem to last longer; a waiter then takes the lock over when it has seen no renewal for a whole TTL. A step
// forward, and clocks of several servers that differ by more than the grace, can end a lease early: only
// fencing tokens protect then.
//
// With [driver.ByObservation] a lease ends for each process when that process has seen it unchanged for the whole
// TTL. Two holders never overlap, whatever the clocks show, as long as their rates differ by less than
// [MarginPart]. A pause of an observer makes it wait longer, never shorter.
//
// # Costs
//
// A call that changes something costs a Get and a Put, and as much again each time that another client was
// faster. With [driver.Lease.State] of its last request, a lease is renewed, written and released by one
// Put, if nobody else has changed the value; with a clock, that needs [Written.Now]. All other calls cost
// a Get. A refused request of a waiter with a place in the order costs a Put, too.
package cas
