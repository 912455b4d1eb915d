package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/test/bench/stores"
	"github.com/holdfast-go/holdfast/test/redistest"
)

func BenchmarkCalls(b *testing.B) {
	s := redistest.Shared(b)
	bare := client(b, s.Addr())
	script := goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return 1`)
	stores.Calls(b, openAt(b, redistest.URL(b)), func(int) error { return script.Run(b.Context(), bare, []string{"bare"}, "a", "b").Err() })
}

func BenchmarkHandover(b *testing.B) {
	at := redistest.URL(b)
	stores.Handover(b, func(sent func()) (*Locker, error) {
		return Open(b.Context(), at, unprobed, func(c *config) { c.sent = sent })
	})
}
