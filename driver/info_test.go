package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestInfoValidate(t *testing.T) {
	whole := driver.Info{Backend: "store", Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}
	if err := whole.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*driver.Info){
		`Info.Backend "" is invalid`:            func(i *driver.Info) { i.Backend = "" },
		"Info.Expiry not declared is invalid":   func(i *driver.Info) { i.Expiry = 0 },
		"ByServer or ByObservation":             func(i *driver.Info) { i.Expiry = driver.ByServer + 1 },
		"Info.Failover not declared is invalid": func(i *driver.Info) { i.Failover = 0 },
		"GrantsSurvive or GrantsMayBeForgotten": func(i *driver.Info) { i.Failover = driver.GrantsSurvive + 1 },
		"Info.Free.RemovedAfter -1s is invalid": func(i *driver.Info) { i.Free.RemovedAfter = -time.Second },
		"Info.Turn -1ns is invalid":             func(i *driver.Info) { i.Turn = -1 },
		"Info.History 33 is invalid":            func(i *driver.Info) { i.History = driver.MaxHistory + 1 },
	} {
		i := whole
		change(&i)
		if err := i.Validate(); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is not promised is said, and nothing else.
func TestCaveats(t *testing.T) {
	for _, c := range []struct {
		info driver.Info
		want []string
	}{
		{driver.Info{Expiry: driver.ByServer, Failover: driver.GrantsSurvive}, nil},
		{driver.Info{Expiry: driver.ByServer, Failover: driver.GrantsMayBeForgotten}, []string{"forgotten"}},
		{driver.Info{Expiry: driver.ByObservation, Failover: driver.GrantsSurvive}, []string{"no clock"}},
		{driver.Info{Expiry: driver.ByObservation, Failover: driver.GrantsMayBeForgotten}, []string{"forgotten", "no clock"}},
	} {
		got := c.info.Caveats()
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			ok = ok && strings.Contains(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
}

func TestTurnAt(t *testing.T) {
	for position, want := range map[int]time.Duration{-1: 0, 0: 0, 1: 0, 2: 2 * time.Second, 6: 10 * time.Second, 7: 10 * time.Second,
		1000: 10 * time.Second} {
		if got := driver.TurnAt(2*time.Second, position); got != want {
			t.Errorf("position %d: %v, want %v", position, got, want)
		}
	}
	if driver.Turn(100) != driver.MaxTurn || driver.MaxTurn != time.Second {
		t.Errorf("a free lock is reserved for %v", driver.Turn(100))
	}
}
