package postgres

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// pass lets time pass, by moving all times of the row back, or lets the clock step back.
func (d *differential) pass() {
	by := d.milliseconds(20, 100, 190, 200, 210, 400, 600, 1000, 2000, 10_000, 40_000)
	row, now := d.read()
	k := row.Lock
	if d.rand.IntN(3) == 0 { // just before or after something ends
		end := k.Expires
		if n := len(k.Queue); k.Holder == "" {
			end += driver.Turn(1 + d.rand.IntN(7))
		} else if n > 0 && d.rand.IntN(2) == 0 {
			end = k.Queue[d.rand.IntN(n)].Until
		}
		if exact := end - now.Elapsed - d.milliseconds(0, 1, 2, 5, 10, 20); exact > 0 {
			by = exact
		}
	}
	if d.rand.IntN(25) == 0 {
		by = -d.milliseconds(100, 900, 5000)
	}
	// To a clock that has stepped back the token is ahead, too. Mostly it stays where time passes, so that revisions do not change; a
	// token that is behind shows that the next one comes from the clock.
	moved := int64(0)
	if by < 0 || by > 2*tolerance && k.Token > 0 && d.rand.IntN(3) == 0 {
		moved = by.Milliseconds()
	}
	k.Token = uint64(int64(k.Token) - moved)
	k.Expires -= by
	k.AcquiredAt, k.RenewedAt = k.AcquiredAt.Add(-by), k.RenewedAt.Add(-by)
	for i := range k.Queue {
		k.Queue[i].Until -= by
	}
	for i := range k.History {
		k.History[i].From = k.History[i].From.Add(-by)
		if !k.History[i].Until.IsZero() {
			k.History[i].Until = k.History[i].Until.Add(-by)
		}
		k.History[i].Token = uint64(int64(k.History[i].Token) - moved)
	}
	d.overwrite(row)
	d.log = append(d.log, fmt.Sprintf("%v pass", by))
}

// compare compares the whole row with the models, of which one must be like it.
func (d *differential) compare(models ...*lockstate.Lock) {
	row, _ := d.read()
	got := &lockstate.Lock{}
	if row != nil {
		got = row.Lock
	}
	var all []string
	for _, want := range models {
		differences := d.differences(got, want)
		if differences == nil {
			return
		}
		all = append(all, strings.Join(differences, "\n"))
	}
	d.Error(strings.Join(all, "\nor\n"))
}

// differences lists how a row differs from a model.
func (d *differential) differences(got, want *lockstate.Lock) (all []string) {
	near := func(x, y time.Duration) bool { return max(x-y, y-x) < tolerance }
	at := func(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
	// The clock may have gone on between the model's grant and the server's, also from the last token to the next.
	fromClock := near(time.Duration(got.Token)*time.Millisecond, at(want.AcquiredAt))
	for _, c := range []struct {
		what      string
		same      bool
		got, want any
	}{
		{"holder", got.Holder == want.Holder, got.Holder, want.Holder},
		{"owner", got.Owner == want.Owner, got.Owner, want.Owner},
		{"token", got.Token == want.Token || fromClock &&
			near(time.Duration(got.Token)*time.Millisecond, time.Duration(want.Token)*time.Millisecond) &&
			(d.before == nil || got.Token > d.before.Token), got.Token, want.Token},
		{"TTL", got.TTL == want.TTL, got.TTL, want.TTL},
		{"expiry", near(got.Expires, want.Expires), got.Expires, want.Expires},
		{"expiry that does not move back", got.Holder == "" || d.before == nil || got.Token != d.before.Token ||
			got.Expires >= d.before.Expires, got.Expires, want.Expires},
		{"time of the grant", near(at(got.AcquiredAt), at(want.AcquiredAt)), got.AcquiredAt, want.AcquiredAt},
		{"time of the renewal", near(at(got.RenewedAt), at(want.RenewedAt)), got.RenewedAt, want.RenewedAt},
		// They are times, or random: they change together.
		{"renewals", d.before == nil || got.Token != d.before.Token ||
			(got.Renewals == d.before.Renewals) == (want.Renewals == d.before.Renewals) && got.Renewals >= d.before.Renewals,
			got.Renewals, want.Renewals},
		{"break", got.Broken == want.Broken, got.Broken, want.Broken},
		{"data", bytes.Equal(got.Data, want.Data), got.Data, want.Data},
		{"writes", got.Writes == want.Writes, got.Writes, want.Writes},
		{"queue", slices.EqualFunc(got.Queue, want.Queue, func(x, y lockstate.Waiter) bool {
			return x.ID == y.ID && x.Polls == y.Polls && near(x.Until, y.Until)
		}), got.Queue, want.Queue},
		{"emptied", got.Emptied == want.Emptied, got.Emptied, want.Emptied},
		{"history", slices.EqualFunc(got.History, want.History, func(x, y driver.Tenure) bool {
			return x.Owner == y.Owner && x.Token == y.Token && x.End == y.End && near(at(x.From), at(y.From)) && near(at(x.Until), at(y.Until))
		}), got.History, want.History},
	} {
		if !c.same {
			all = append(all, fmt.Sprintf("%s: %v, want %v", c.what, c.got, c.want))
		}
	}
	return all
}

// A field that the rules get is one that this driver must store, and differences must compare.
func TestEveryFieldIsCompared(t *testing.T) {
	const compared = 15
	if n := reflect.TypeFor[lockstate.Lock]().NumField(); n != compared {
		t.Errorf("a lock has %d fields, and differences knows %d", n, compared)
	}
}
