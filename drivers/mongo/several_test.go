package mongo

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// The scenario needs minutes on a busy machine, so it is a benchmark only.
func BenchmarkSeveralNames(b *testing.B) {
	at := mongotest.Collection(b)
	locktest.FiftyOfTwenty(10, 5*time.Millisecond).Bench(b, 10, func() holdfast.Locker { return several(b, at) })
}

// several is one process.
func several(tb testing.TB, at *mongo.Collection) holdfast.Locker {
	tb.Helper()
	l, err := New(tb.Context(), at)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}
