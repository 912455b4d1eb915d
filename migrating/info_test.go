package migrating_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/migrating"
)

// declared is an old lock with another declaration.
type declared struct {
	migrating.Old
	info driver.Info
}

func (d declared) Info() driver.Info { return d.info }

// Two locks promise what both promise. An old lock that declares nothing makes the whole undeclared.
func TestInfoIsTheWeakerOfBoth(t *testing.T) {
	store := memory.New()
	whole := store.Info()
	for name, c := range map[string]struct {
		old      driver.Info
		expiry   driver.Expiry
		failover driver.Failover
	}{
		"the same": {whole, driver.ByServer, driver.GrantsSurvive},
		"forgets": {driver.Info{Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}, driver.ByServer,
			driver.GrantsMayBeForgotten},
		"by observation": {driver.Info{Expiry: driver.ByObservation, Failover: driver.GrantsSurvive}, driver.ByObservation, driver.GrantsSurvive},
		"nothing":        {driver.Info{}, 0, 0},
	} {
		l, err := migrating.New(store, declared{migrating.FromLocker(store), c.old})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Info(); got.Expiry != c.expiry || got.Failover != c.failover || got.Backend != whole.Backend || got.Free != whole.Free {
			t.Errorf("%s: %+v", name, got)
		}
		if err := l.Info().Validate(); (err == nil) != (c.expiry != 0) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fixed := whole
	fixed.FixedTTL, fixed.Limits.MinTTL, fixed.Limits.MaxTTL = true, 15*time.Second, time.Minute
	l, err := migrating.New(store, declared{migrating.FromLocker(store), fixed})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Info(); !got.FixedTTL || got.Limits.MinTTL != 15*time.Second || got.Limits.MaxTTL != time.Minute ||
		got.Limits.MaxName != whole.Limits.MaxName {
		t.Errorf("%+v", got)
	}
}

// A lock that declares no longest TTL has any up to driver.MaxTTL.
func TestLockWithoutALongestTTL(t *testing.T) {
	store := memory.New()
	limited := func(l driver.Locker, longest time.Duration) driver.Info {
		info := l.Info()
		info.Limits.MaxTTL = longest
		return info
	}
	for name, c := range map[string]struct{ locker, old, want time.Duration }{
		"neither has one": {0, 0, driver.MaxTTL},
		"the old one has": {0, time.Minute, time.Minute},
		"the new one has": {time.Minute, 0, time.Minute},
	} {
		l, err := migrating.New(unlimited{store, limited(store, c.locker)}, declared{migrating.FromLocker(store), limited(store, c.old)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := l.Info().Limits; got.MaxTTL != c.want {
			t.Errorf("%s: the longest TTL is %v", name, got.MaxTTL)
		}
	}
	never := driver.Info{Limits: driver.Limits{MinTTL: driver.MaxTTL}}
	_, err := migrating.New(store, declared{migrating.FromLocker(store), never})
	if want := driver.FormatDuration(driver.MaxTTL); err == nil || !strings.Contains(err.Error(), want+" to "+want) ||
		!strings.Contains(err.Error(), driver.FormatDuration(store.Info().Limits.MaxTTL)) {
		t.Errorf("no TTL suits both: %v; want both ranges", err)
	}
}

// unlimited is a Locker with another declaration.
type unlimited struct {
	driver.Locker
	info driver.Info
}

func (u unlimited) Info() driver.Info { return u.info }
