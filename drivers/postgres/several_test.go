package postgres

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Callers of several names at once: no name has two holders, and nobody waits for much longer than the others.
func TestSeveralNamesUnderContention(t *testing.T) {
	serverprocess.Long(t, "runs the rules of the queue thousands of times")
	at := postgrestest.URL(t)
	locktest.FiftyOfTwenty(3, 5*time.Millisecond).Test(t, 10, 5, func() holdfast.Locker { return several(t, at) })
}

func BenchmarkSeveralNames(b *testing.B) {
	at := postgrestest.URL(b)
	locktest.FiftyOfTwenty(10, 5*time.Millisecond).Bench(b, 10, func() holdfast.Locker { return several(b, at) })
}

// several is one process.
func several(tb testing.TB, at string) holdfast.Locker {
	tb.Helper()
	l, err := Open(tb.Context(), at)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}
