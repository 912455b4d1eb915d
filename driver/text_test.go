package driver_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Nanosecond: "1ns", 1500 * time.Millisecond: "1.5s", 5 * time.Second: "5s", 10 * time.Second: "10s",
		time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s",
		time.Hour + 30*time.Minute: "1h30m", 24 * time.Hour: "24h", 7 * 24 * time.Hour: "7 days", 365 * 24 * time.Hour: "1 year",
		10 * 365 * 24 * time.Hour: "10 years", -time.Minute: "-1m", 100*time.Hour + 500*time.Millisecond: "100h0m0.5s",
		20 * time.Hour: "20h", 20*time.Hour + 10*time.Minute: "20h10m", 100 * time.Second: "1m40s",
		2*time.Minute + 500*time.Millisecond: "2m0.5s", time.Duration(1<<63 - 1): "2562047h47m16.854775807s",
		365*24*time.Hour + 48*time.Hour: "367 days", 25 * time.Hour: "25h", time.Minute + 100*time.Millisecond: "1m0.1s",
		3*time.Hour + 20*time.Second: "3h0m20s", -365 * 24 * time.Hour: "-8760h", 48*time.Hour + 10*time.Millisecond: "48h0m0.01s",
		time.Millisecond + 10*time.Nanosecond: "1.00001ms",
	} {
		if got := driver.FormatDuration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

// FuzzDuration reads every text back: it is exact, and so no two durations look alike.
func FuzzDuration(f *testing.F) {
	for _, d := range []time.Duration{0, 1, -1, time.Minute, time.Hour, 24 * time.Hour, 8760 * time.Hour, -8760 * time.Hour, 1<<63 - 1,
		-1 << 63} {
		f.Add(int64(d))
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := time.Duration(n)
		got := driver.FormatDuration(d)
		if back, err := parse(got); err != nil || back != d {
			t.Errorf("%d is shown as %q, which reads as %d, error %v", n, got, back, err)
		}
	})
}

// parse reverses driver.FormatDuration.
func parse(s string) (time.Duration, error) {
	number, unit, _ := strings.Cut(s, " ")
	length := map[string]time.Duration{"day": 24 * time.Hour, "year": 365 * 24 * time.Hour}[strings.TrimSuffix(unit, "s")]
	if length == 0 {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return time.Duration(n) * length, err
}

// FuzzQuote checks that a quoted text is short, safe to print, and begins as the text does.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "billing", "a\x00\x1b[2J\n", "\xff\xfe", strings.Repeat("é", 40), strings.Repeat("\x80", 70)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := driver.Quote(s)
		quoted, rest, shortened := strings.Cut(got, "… (")
		if strings.HasSuffix(got, `"`) { // the text itself may contain the mark of shortening
			quoted, rest, shortened = got, "", false
		}
		back, err := strconv.Unquote(quoted)
		if err != nil || !strings.HasPrefix(s, back) || !shortened && back != s {
			t.Errorf("%q is shown as %s, which reads as %q, error %v", s, got, back, err)
		}
		if shortened != (len(s) > 60) || shortened && rest != strconv.Itoa(len(s))+" bytes)" {
			t.Errorf("%d bytes are shown as %s", len(s), got)
		}
		if len(got) > 300 || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %s", s, got)
		}
	})
}
