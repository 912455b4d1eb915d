package driver_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                     "0s",
		time.Nanosecond:                       "1ns",
		1500 * time.Millisecond:               "1.5s",
		5 * time.Second:                       "5s",
		10 * time.Second:                      "10s",
		time.Minute:                           "1m",
		90 * time.Second:                      "1m30s",
		10 * time.Minute:                      "10m",
		time.Hour:                             "1h",
		time.Hour + time.Second:               "1h0m1s",
		time.Hour + 30*time.Minute:            "1h30m",
		24 * time.Hour:                        "24h",
		7 * 24 * time.Hour:                    "7 days",
		365 * 24 * time.Hour:                  "1 year",
		10 * 365 * 24 * time.Hour:             "10 years",
		-time.Minute:                          "-1m",
		100*time.Hour + 500*time.Millisecond:  "100h0m0.5s",
		20 * time.Hour:                        "20h",
		20*time.Hour + 10*time.Minute:         "20h10m",
		100 * time.Second:                     "1m40s",
		2*time.Minute + 500*time.Millisecond:  "2m0.5s",
		time.Duration(1<<63 - 1):              "2562047h47m16.854775807s",
		365*24*time.Hour + 48*time.Hour:       "367 days",
		25 * time.Hour:                        "25h",
		time.Minute + 100*time.Millisecond:    "1m0.1s",
		3*time.Hour + 20*time.Second:          "3h0m20s",
		-365 * 24 * time.Hour:                 "-8760h",
		48*time.Hour + 10*time.Millisecond:    "48h0m0.01s",
		time.Millisecond + 10*time.Nanosecond: "1.00001ms",
	} {
		if got := driver.FormatDuration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
