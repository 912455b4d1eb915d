package s3

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/s3test"
)

func BenchmarkCalls(b *testing.B) {
	l, err := Open(b.Context(), s3test.URL(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(b.Context())) }()
	stores.Calls(b, l, stores.Put(b.Context(), l.store))
}

func BenchmarkHandover(b *testing.B) {
	at := s3test.URL(b)
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, onlyReads, func(c *settings) { c.sent = sent })
	})
}
