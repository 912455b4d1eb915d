package holdfast_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func TestValidateHandOver(t *testing.T) {
	limits := holdfast.Limits{MinTTL: time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 8}
	const secret = "5ecret-of-the-lease"
	from := holdfast.Lease{Name: "n", ID: holdfast.NewLeaseID(secret)}
	req := holdfast.Request{Name: "n", ID: holdfast.NewLeaseID(secret + "-2"), TTL: time.Second}
	for _, c := range []struct {
		field  string // none: allowed
		change func(*holdfast.Lease, *holdfast.Request)
	}{
		{"", func(*holdfast.Lease, *holdfast.Request) {}},
		{"", func(_ *holdfast.Lease, r *holdfast.Request) { r.ID = holdfast.NewLeaseID(secret) }},
		{"", func(l *holdfast.Lease, _ *holdfast.Request) { l.TTL, l.Token, l.Owner = -1, 7, "\xff" }}, // they do not matter
		{"from.Name", func(l *holdfast.Lease, _ *holdfast.Request) { l.Name = "" }},
		{"from.Name", func(l *holdfast.Lease, _ *holdfast.Request) { l.Name = "another" }},
		{"from.ID", func(l *holdfast.Lease, _ *holdfast.Request) { l.ID = holdfast.LeaseID{} }},
		{"from.ID", func(l *holdfast.Lease, _ *holdfast.Request) { l.ID = holdfast.NewLeaseID(secret + "\xff") }},
		{"from.ID", func(l *holdfast.Lease, _ *holdfast.Request) { l.ID = holdfast.NewLeaseID(strings.Repeat(secret, 4)) }},
		{"Name", func(l *holdfast.Lease, r *holdfast.Request) { l.Name, r.Name = "", "" }},
		{"ID", func(_ *holdfast.Lease, r *holdfast.Request) { r.ID = holdfast.LeaseID{} }},
		{"TTL", func(_ *holdfast.Lease, r *holdfast.Request) { r.TTL = time.Hour }},
	} {
		l, r := from, req
		c.change(&l, &r)
		err := holdfast.ValidateHandOver(l, r, limits)
		var invalid *holdfast.InvalidError
		switch {
		case c.field == "" && err == nil:
		case !errors.As(err, &invalid) || invalid.Field != c.field:
			t.Errorf("from %q to %q: got %v, want %q to be invalid", l.Name, r.Name, err, c.field)
		case strings.Contains(err.Error(), secret):
			t.Errorf("an ID is shown: %v", err)
		}
	}
}
