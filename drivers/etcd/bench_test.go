package etcd

import (
	"testing"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

func BenchmarkCalls(b *testing.B) {
	l := openAt(b, etcdtest.URL(b))
	key := []byte(l.store.key("bare"))
	put := []operation{{Put: &putRequest{Key: key, Value: []byte("b")}}}
	bare := txnRequest{Compare: []compare{{Key: key, Target: targetValue, Value: []byte("b")}}, Success: put, Failure: put}
	stores.Calls(b, l, func(int) error {
		return l.store.ask(b.Context(), call{method: methodTxn, body: bare, writes: true}, &txnAnswer{})
	})
}

func BenchmarkHandover(b *testing.B) {
	at := etcdtest.URL(b)
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, onlyReads, func(c *settings) { c.sent = sent })
	})
}
