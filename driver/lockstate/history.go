package lockstate

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// endTenure adds the tenure of the present holder to the history. A broken holder's ends as broken,
// also if it releases or hands over the lock.
func (k *Lock) endTenure(end driver.End, until time.Time) {
	if len(k.Readers) > 0 {
		for len(k.Readers) > 0 {
			k.endReader(0, end, until)
		}
		return
	}
	if k.Broken && end != driver.EndFreed {
		end = driver.EndBroken
	}
	k.History = append(k.History, driver.Tenure{Owner: k.Owner, Token: k.Token, From: k.AcquiredAt, Until: until, End: end})
	k.KeepHistory(driver.MaxHistory)
}

// closeTenure adds the tenure of the last holder of a lock that is not held, unless it is there.
func (k *Lock) closeTenure(now Moment) {
	switch {
	case len(k.Readers) > 0:
		k.dropExpired(now)
	case k.Holder != "": // its lease has expired
		k.endTenure(driver.EndExpired, now.Wall.Add(k.Expires-now.Elapsed))
	case k.Token != 0 && !k.lastTenureKnown():
		k.endTenure(driver.EndUnknown, time.Time{})
	}
}

// lastTenureKnown reports whether the history has the last holder. It does not if none was kept then, or if it
// was damaged.
func (k *Lock) lastTenureKnown() bool {
	n := len(k.History)
	return n > 0 && k.History[n-1].Token == k.Token
}

// KeepHistory keeps the last n past holders.
func (k *Lock) KeepHistory(n int) {
	k.History = slices.Delete(k.History, 0, max(0, len(k.History)-n))
}

// PastHolders returns the last n tenures as [driver.Record] has them: the latest first, and the last
// holder of a lock that is not held first of all.
func (k *Lock) PastHolders(n int, now Moment) []driver.Tenure {
	past := Lock{Holder: k.Holder, Owner: k.Owner, Token: k.Token, Broken: k.Broken, Expires: k.Expires, AcquiredAt: k.AcquiredAt,
		Readers: slices.Clone(k.Readers), History: slices.Clone(k.History)}
	if !past.Held(now) {
		past.closeTenure(now)
	}
	past.KeepHistory(n)
	slices.Reverse(past.History)
	return past.History
}
