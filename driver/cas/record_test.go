package cas

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// FuzzRecord checks that every record that can be read is written back as it is, and that a grant that follows it
// can be read, too.
func FuzzRecord(f *testing.F) {
	whole, err := (&record{Name: "n", Expiry: driver.ByServer.String(), Used: time.Hour, Stored: lockrecord.Stored{Lock: lockstate.Lock{
		Holder: lockrecord.Digest(driver.NewLeaseID("first")), Owner: "me", Token: 7, TTL: time.Minute, Expires: time.Hour,
		AcquiredAt: time.UnixMilli(1),
		RenewedAt:  time.UnixMilli(2), Renewals: 1, Broken: true, Data: []byte("data"), Writes: 2, Queue: []lockstate.Waiter{{ID: "w", Until: 1}},
		History: []driver.Tenure{{Owner: "a", Token: 1, From: time.UnixMilli(1)}}}}}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"name":"n","expiry":"by the server","token":9223372036854775806,` +
		`"acquiredAt":"9999-12-31T23:59:59.999999999-23:59"}`))
	f.Add([]byte(`{"version":1,"name":"n","expiry":"by the server","removed":true,"token":1,` +
		`"acquiredAt":"0000-01-01T00:00:00+23:59","past":"1;;;r;a,x"}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		rec, err := decode("n", "n", content, driver.ByServer)
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Fatalf("%s: %v", content, err)
			}
			return
		}
		again := func(rec record) record {
			data, err := rec.encode()
			if err != nil {
				t.Fatalf("%+v: %v", rec, err)
			}
			read, err := decode("n", "n", data, driver.ByServer)
			if err != nil {
				t.Fatalf("%s becomes %s, which cannot be read: %v", content, data, err)
			}
			return read
		}
		one, _ := rec.encode()
		if two, err := rec.encode(); err != nil || bytes.Equal(one, two) {
			t.Errorf("%s and %s, error %v: the hash of two values must differ", one, two, err)
		}
		if read := again(rec); read.mark() != rec.mark() || read.HistoryText() != rec.HistoryText() || !bytes.Equal(read.Data, rec.Data) {
			t.Errorf("%s becomes %+v", content, read)
		}
		last := rec.Token
		if rec.BreakNow(lockstate.Moment{Wall: time.UnixMilli(2)}); last == lockrecord.LastToken-1 {
			return
		}
		rec.Removed = false
		req := driver.Request{Name: "n", ID: driver.NewLeaseID("next"), Owner: "me", TTL: time.Minute}
		if !rec.Acquire(req, lockrecord.Digest(req.ID), lockstate.Moment{Elapsed: time.Hour, Wall: time.UnixMilli(3).UTC()}) {
			t.Fatalf("%s: a free lock is refused", content)
		}
		if granted := again(rec); granted.Token <= last || granted.Holder != lockrecord.Digest(req.ID) {
			t.Errorf("%s is granted as %+v", content, granted)
		}
	})
}
