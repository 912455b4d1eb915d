package lockview_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// Of those who share a lock, the latest stands for all, whoever the record itself names.
func TestLatest(t *testing.T) {
	alone := driver.Record{Name: "job", State: driver.StateHeld, Owner: "web-1", Token: 7}
	if got := lockview.Latest(alone); got.Owner != "web-1" || got.Token != 7 {
		t.Errorf("alone: %+v", got)
	}
	shared := driver.Record{Name: "job", State: driver.StateHeld, Owner: "gone", Token: 9, Holders: []driver.Holder{
		{Owner: "web-1", Token: 7}, {Owner: "web-2", Token: 8}}}
	if got := lockview.Latest(shared); got.Name != "job" || got.State != driver.StateHeld || got.Owner != "web-2" || got.Token != 8 {
		t.Errorf("shared: %+v", got)
	}
}

// The time left passes for the lock and for each holder, ends at zero, and does not change what was read.
func TestNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := driver.Record{Remaining: 5 * time.Second, Holders: []driver.Holder{{Remaining: time.Second}, {Remaining: 5 * time.Second}}}
		at := time.Now()
		time.Sleep(2 * time.Second)
		now := lockview.Now(&read, at)
		if now.Remaining != 3*time.Second || now.Holders[0].Remaining != 0 || now.Holders[1].Remaining != 3*time.Second {
			t.Errorf("now: %+v", now)
		}
		if read.Holders[0].Remaining != time.Second {
			t.Errorf("what was read has become %+v", read)
		}
	})
}

// The record of one of the holders has whatever is known of that holder.
func TestOfHolderForgetsNothing(t *testing.T) {
	h := driver.Holder{Owner: "web-1", Token: 7, TTL: time.Minute, Remaining: time.Second, RemainingKnown: true, AcquiredAt: time.Unix(1, 0),
		RenewedAt: time.Unix(2, 0), Broken: true}
	holder, record := reflect.ValueOf(h), reflect.ValueOf(lockview.OfHolder(driver.Record{}, h))
	for i := range holder.NumField() {
		name := holder.Type().Field(i).Name
		if holder.Field(i).IsZero() || !reflect.DeepEqual(holder.Field(i).Interface(), record.FieldByName(name).Interface()) {
			t.Errorf("%s: %v became %v", name, holder.Field(i), record.FieldByName(name))
		}
	}
}
