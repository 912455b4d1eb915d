package driver_test

import (
	"encoding/json"
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
		record driver.Record
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
		"nothing left": {
			driver.Record{Name: "n", State: driver.StateHeld, TTL: time.Minute, RemainingKnown: true},
			`{"name":"n","state":"held","ttl":"1m0s","remaining":"0s"}`,
		},
		"time left unknown": {
			driver.Record{Name: "n", State: driver.StateHeld, Remaining: time.Second},
			`{"name":"n","state":"held"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []any{c.record, &c.record} {
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
