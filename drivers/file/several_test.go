package file

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// Callers of several names at once: no name has two holders, and nobody waits for much longer than the others.
func TestSeveralNamesUnderContention(t *testing.T) {
	at := t.TempDir()
	locktest.FiftyOfTwenty(3, 5*time.Millisecond).Test(t, 50, 8, func() holdfast.Locker { return several(t, at) })
}

func BenchmarkSeveralNames(b *testing.B) {
	at := b.TempDir()
	locktest.FiftyOfTwenty(10, 5*time.Millisecond).Bench(b, 50, func() holdfast.Locker { return several(b, at) })
}

// several is one process. The backend has no order between processes, so waits differ more.
func several(tb testing.TB, at string) holdfast.Locker {
	tb.Helper()
	l, err := New(at)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}
