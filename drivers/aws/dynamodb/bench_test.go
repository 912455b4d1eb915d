package dynamodb

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

func BenchmarkCalls(b *testing.B) {
	l, err := Open(b.Context(), dynamodbtest.URL(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(b.Context())) }()
	stores.Calls(b, l, stores.Put(b.Context(), l.store))
}

func BenchmarkHandover(b *testing.B) {
	at := dynamodbtest.URL(b)
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, onlyReads, func(c *settings) { c.sent = sent })
	})
}
