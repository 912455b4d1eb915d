package clock

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The clock shows the kernel's time since boot, as /proc/uptime does: it counts suspend and does
// not follow the wall clock.
func TestElapsedIsTheTimeSinceBoot(t *testing.T) {
	uptime := func() time.Duration {
		b, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		s, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(s * float64(time.Second))
	}
	const resolution = 20 * time.Millisecond
	before := uptime()
	now := Elapsed()
	after := uptime()
	if now < before-resolution || now > after+resolution {
		t.Errorf("elapsed is %v, not between %v and %v", now, before, after)
	}
	for last, i := now, 0; i < 1000; i++ {
		next := Elapsed()
		if next < last {
			t.Fatalf("the clock stepped back from %v to %v", last, next)
		}
		last = next
	}
	if n := testing.AllocsPerRun(100, func() { _ = Elapsed() }); n != 0 {
		t.Errorf("elapsed allocates %v times", n)
	}
}

func BenchmarkElapsed(b *testing.B) {
	for b.Loop() {
		_ = Elapsed()
	}
}
