package driver_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The JSON of a record has every known fact, and none that is unknown.
func TestRecordJSON(t *testing.T) {
	acquired := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	const secret = "3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"
	for name, c := range map[string]struct {
		record any // or a tenure
		want   string
	}{
		"nothing known": {driver.Record{Name: "n"}, `{"name":"n","state":"unknown"}`},
		"no record":     {driver.Record{Name: "n", State: driver.StateFree}, `{"name":"n","state":"free"}`},
		"all known": {
			driver.Record{
				Name: "n", State: driver.StateHeld, Owner: "host/1", Token: 1<<63 + 1, TTL: 30 * time.Second,
				Remaining: 12500 * time.Millisecond, RemainingKnown: true,
				AcquiredAt: acquired, RenewedAt: acquired.Add(1500 * time.Millisecond),
				Broken: true, Data: []byte("hello"), Revision: driver.NewRevision(secret),
			},
			`{"name":"n","state":"held","owner":"host/1","token":9223372036854775809,"ttl":"30s","remaining":"12.5s",` +
				`"acquiredAt":"2026-01-02T15:04:05Z","renewedAt":"2026-01-02T15:04:06.5Z","broken":true,"data":"aGVsbG8="}`,
		},
		"nothing left": {driver.Record{Name: "n", State: driver.StateHeld, TTL: time.Minute, RemainingKnown: true},
			`{"name":"n","state":"held","ttl":"1m0s","remaining":"0s"}`},
		"time left unknown": {driver.Record{Name: "n", State: driver.StateHeld, Remaining: time.Second}, `{"name":"n","state":"held"}`},
		"shared": {
			driver.Record{Name: "n", State: driver.StateHeld, Owner: "host/2", Token: 8, Holders: []driver.Holder{
				{Owner: "host/1", Token: 7, TTL: time.Minute, Remaining: 3 * time.Second, RemainingKnown: true, AcquiredAt: acquired,
					RenewedAt: acquired, Broken: true},
				{Owner: "host/2", Token: 8},
			}},
			`{"name":"n","state":"held","owner":"host/2","token":8,"holders":[{"owner":"host/1","token":7,"ttl":"1m0s","remaining":"3s",` +
				`"acquiredAt":"2026-01-02T15:04:05Z","renewedAt":"2026-01-02T15:04:05Z","broken":true},{"owner":"host/2","token":8}]}`,
		},
		"a past holder": {driver.Tenure{Owner: "host/1", Token: 7, From: acquired, Until: acquired.Add(time.Second), End: driver.EndHandedOver},
			`{"owner":"host/1","token":7,"from":"2026-01-02T15:04:05Z","until":"2026-01-02T15:04:06Z","end":"handed over"}`},
		"an unknown one": {driver.Tenure{}, `{"end":"unknown"}`},
	} {
		t.Run(name, func(t *testing.T) {
			pointer := reflect.New(reflect.TypeOf(c.record))
			pointer.Elem().Set(reflect.ValueOf(c.record))
			for _, v := range []any{c.record, pointer.Interface()} {
				got, err := json.Marshal(v)
				if err != nil || string(got) != c.want {
					t.Errorf("%T: got %s, error %v\nwant %s", v, got, err, c.want)
				}
				if strings.Contains(string(got), secret) {
					t.Errorf("the revision is in %s", got)
				}
			}
		})
	}
	// Reading one back would lose facts without an error, so it is refused.
	var back driver.Record
	if err := json.Unmarshal([]byte(`{"name":"n","state":"held"}`), &back); err == nil {
		t.Errorf("a record was read back from JSON: %+v", back)
	}
}

// No field of a record, or of a holder, is forgotten in JSON.
func TestJSONHasEveryField(t *testing.T) {
	left := []string{"RemainingKnown", "Position", "Revision"} // see MarshalJSON
	for _, v := range []reflect.Value{reflect.ValueOf(&driver.Record{}).Elem(), reflect.ValueOf(&driver.Holder{}).Elem()} {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Interface().(type) {
			case time.Time:
				f.Set(reflect.ValueOf(time.Unix(1, 0)))
			case driver.Revision:
			default:
				if f.Kind() == reflect.Slice {
					f.Set(reflect.MakeSlice(f.Type(), 1, 1))
				} else {
					f.Set(reflect.ValueOf(map[reflect.Kind]any{reflect.String: "x", reflect.Bool: true, reflect.Int: 1, reflect.Int64: 1,
						reflect.Uint8: 1, reflect.Uint64: 1}[f.Kind()]).Convert(f.Type()))
				}
			}
		}
		line, err := json.Marshal(v.Interface())
		var got map[string]any
		if err != nil || json.Unmarshal(line, &got) != nil {
			t.Fatal(string(line), err)
		}
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			in := slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(key string) bool { return strings.EqualFold(key, name) })
			if in == slices.Contains(left, name) {
				t.Errorf("%s.%s is in the JSON: %v; %s", v.Type(), name, in, line)
			}
		}
	}
}

func TestRecordJSONDurationsParse(t *testing.T) {
	record := driver.Record{Name: "n", State: driver.StateHeld, TTL: 8760 * time.Hour, Remaining: 90 * time.Second, RemainingKnown: true}
	line, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ TTL, Remaining string }
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]time.Duration{got.TTL: record.TTL, got.Remaining: record.Remaining} {
		if d, err := time.ParseDuration(field); err != nil || d != want {
			t.Errorf("%q reads as %v, error %v, want %v", field, d, err, want)
		}
	}
}

// FuzzRecordJSON reads the JSON of a record back: every known fact is in it, unchanged, and
// nothing else. It cannot be written if a time has a year that RFC 3339 does not have.
func FuzzRecordJSON(f *testing.F) {
	f.Add("billing", "host/1", uint8(2), uint64(7), int64(30*time.Second), int64(time.Second), true, int64(1_767_366_245), int64(5), false,
		[]byte("hello"))
	f.Add("\u2028<&>\"\\\x00", "", uint8(0), uint64(0), int64(0), int64(0), false, int64(0), int64(0), true, []byte(nil))
	f.Add("n", "\xff", uint8(9), uint64(math.MaxUint64), int64(math.MinInt64), int64(math.MinInt64), true, int64(math.MaxInt64), int64(-1),
		true, []byte{})
	f.Fuzz(func(t *testing.T, name, owner string, state uint8, token uint64, ttl, remaining int64, known bool, acquired, renewed int64,
		broken bool, data []byte) {
		const secret = "3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"
		r := driver.Record{
			Name: strings.ToValidUTF8(name, "?"), Owner: strings.ToValidUTF8(owner, "?"), State: driver.State(state), Token: token,
			TTL: time.Duration(ttl), Remaining: time.Duration(remaining), RemainingKnown: known,
			AcquiredAt: time.Unix(acquired, 0).UTC(), RenewedAt: time.UnixMilli(renewed).UTC(),
			Broken: broken, Data: data, Revision: driver.NewRevision(secret),
		}
		line, err := json.Marshal(r)
		if writable := isYear(r.AcquiredAt) && isYear(r.RenewedAt); writable != (err == nil) {
			t.Fatalf("%+v: error %v", r, err)
		}
		if err != nil {
			return
		}
		var got struct {
			Name, State, Owner    string
			Token                 uint64
			TTL, Remaining        *string
			AcquiredAt, RenewedAt time.Time
			Broken                bool
			Data                  []byte
		}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got.Name != r.Name || got.State != r.State.String() || got.Owner != r.Owner || got.Token != token ||
			!got.AcquiredAt.Equal(r.AcquiredAt) || !got.RenewedAt.Equal(r.RenewedAt) || got.Broken != broken || !bytes.Equal(got.Data, data) {
			t.Errorf("%+v became %s", r, line)
		}
		checkDuration(t, got.TTL, r.TTL, r.TTL != 0)
		checkDuration(t, got.Remaining, r.Remaining, known)
		if strings.Contains(string(line), secret) && !strings.Contains(r.Name+r.Owner, secret) {
			t.Errorf("the revision is in %s", line)
		}
	})
}

func isYear(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

func checkDuration(t *testing.T, got *string, want time.Duration, known bool) {
	t.Helper()
	if got == nil {
		if known {
			t.Errorf("%v is missing", want)
		}
		return
	}
	if d, err := time.ParseDuration(*got); err != nil || d != want || !known {
		t.Errorf("%q reads as %v, error %v; want %v, known %v", *got, d, err, want, known)
	}
}
