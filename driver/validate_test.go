package driver_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzValidate compares the checks with the rules as the documentation has them. An error names
// the field, is short and safe to print, and never shows an ID.
func FuzzValidate(f *testing.F) {
	f.Add("billing", "5d0f3d2c-1f6e-4a3e-9a3f-0c8d8a1c2b3d", "host/1", []byte("data"), int64(30*time.Second), uint8(0))
	f.Add("", "", "", []byte(nil), int64(0), uint8(1))
	f.Add("\xff", "\xff", "\xff", []byte("x"), int64(-1), uint8(2))
	f.Add(strings.Repeat("n", 9), strings.Repeat("i", 65), strings.Repeat("o", 9), bytes.Repeat([]byte("d"), 9), int64(math.MaxInt64),
		uint8(1))
	f.Fuzz(func(t *testing.T, name, id, owner string, data []byte, ttl int64, which uint8) {
		limits := []driver.Limits{
			{}, // no limits
			{MinTTL: time.Second, MaxTTL: time.Minute, TTLStep: time.Second, TTLNote: "a note", MaxName: 8, MaxOwner: 8, MaxData: 8},
			{MinTTL: time.Millisecond, MaxTTL: driver.MaxTTL, TTLStep: time.Nanosecond, MaxName: 1024, MaxOwner: 1024, MaxData: 1 << 20},
		}[which%3]
		req := driver.Request{Name: name, ID: driver.NewLeaseID(id), Owner: owner, TTL: time.Duration(ttl), Data: data}
		fits := func(s string, limit int) bool { return utf8.ValidString(s) && (limit == 0 || len(s) <= limit) }
		longest := limits.MaxTTL
		if longest == 0 {
			longest = driver.MaxTTL
		}
		allowed := map[string]bool{
			"Name":  name != "" && fits(name, limits.MaxName),
			"ID":    id != "" && fits(id, 64),
			"Owner": fits(owner, limits.MaxOwner),
			"Data":  limits.MaxData == 0 || len(data) <= limits.MaxData,
			"TTL":   req.TTL > 0 && req.TTL >= limits.MinTTL && req.TTL <= longest && (limits.TTLStep == 0 || req.TTL%limits.TTLStep == 0),
		}
		checkInvalid(t, req.Validate(driver.Info{Limits: limits}), allowed, req)
	})
}

// checkInvalid checks that err names a field that is not allowed, or is nil if there is none.
func checkInvalid(t *testing.T, err error, allowed map[string]bool, req driver.Request) {
	t.Helper()
	wrong := 0
	for _, ok := range allowed {
		if !ok {
			wrong++
		}
	}
	if err == nil {
		if wrong > 0 {
			t.Errorf("%+v is accepted: %v", req, allowed)
		}
		return
	}
	var invalid *driver.InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, driver.ErrInvalid) {
		t.Fatalf("%v is no *InvalidError", err)
	}
	if ok, known := allowed[invalid.Field]; !known || ok {
		t.Errorf("%v, although that field is allowed: %v", err, allowed)
	}
	message := err.Error()
	if len(message) > 600 || strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("the error is too long or not safe to print: %q", message)
	}
	if id := req.ID.Reveal(); len(id) >= 16 && strings.Contains(message, id) && !strings.Contains(req.Name+req.Owner, id) {
		t.Errorf("the ID is shown: %v", err)
	}
}
