package driver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestValidateHandOver(t *testing.T) {
	limits := driver.Limits{MinTTL: time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 8}
	const secret = "5ecret-of-the-lease"
	from := driver.Lease{Name: "n", ID: driver.NewLeaseID(secret)}
	req := driver.Request{Name: "n", ID: driver.NewLeaseID(secret + "-2"), TTL: time.Second}
	for _, c := range []struct {
		field  string // none: allowed
		change func(*driver.Lease, *driver.Request)
	}{
		{"", func(*driver.Lease, *driver.Request) {}},
		{"", func(_ *driver.Lease, r *driver.Request) { r.ID = driver.NewLeaseID(secret) }},
		{"", func(l *driver.Lease, _ *driver.Request) { l.TTL, l.Token, l.Owner = -1, 7, "\xff" }}, // they do not matter
		{"from.Name", func(l *driver.Lease, _ *driver.Request) { l.Name = "" }},
		{"from.Name", func(l *driver.Lease, _ *driver.Request) { l.Name = "another" }},
		{"from.ID", func(l *driver.Lease, _ *driver.Request) { l.ID = driver.LeaseID{} }},
		{"from.ID", func(l *driver.Lease, _ *driver.Request) { l.ID = driver.NewLeaseID(secret + "\xff") }},
		{"from.ID", func(l *driver.Lease, _ *driver.Request) { l.ID = driver.NewLeaseID(strings.Repeat(secret, 4)) }},
		{"Name", func(l *driver.Lease, r *driver.Request) { l.Name, r.Name = "", "" }},
		{"ID", func(_ *driver.Lease, r *driver.Request) { r.ID = driver.LeaseID{} }},
		{"TTL", func(_ *driver.Lease, r *driver.Request) { r.TTL = time.Hour }},
	} {
		l, r := from, req
		c.change(&l, &r)
		err := driver.ValidateHandOver(l, r, limits)
		var invalid *driver.InvalidError
		switch {
		case c.field == "" && err == nil:
		case !errors.As(err, &invalid) || invalid.Field != c.field:
			t.Errorf("from %q to %q: got %v, want %q to be invalid", l.Name, r.Name, err, c.field)
		case strings.Contains(err.Error(), secret):
			t.Errorf("an ID is shown: %v", err)
		}
	}
}
