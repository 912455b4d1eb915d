package nats

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/natstest"
)

func openBench(b *testing.B, at string) *Locker {
	b.Helper()
	l, err := Open(b.Context(), at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.WithoutCancel(b.Context())) })
	return l
}

func BenchmarkCalls(b *testing.B) {
	l := openBench(b, natstest.Start(b).URL()+"/locks")
	var last uint64
	stores.Calls(b, l, func(int) (err error) {
		last, err = l.store.publish(b.Context(), present(l), "bare", []byte("b"), last)
		return err
	})
}

func BenchmarkHandover(b *testing.B) {
	at := natstest.Start(b).URL() + "/locks"
	openBench(b, at) // makes the bucket
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, onlyReads, func(c *settings) { c.sent = sent })
	})
}
