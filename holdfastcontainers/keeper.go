package holdfastcontainers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gofrs/flock"
)

// The variables that make a test binary a keeper, or the starter of one. A starter lets its keeper
// survive the test process: it waits until the backend is ready, and ends.
const (
	role        = "HOLDFASTCONTAINERS_ROLE"
	roleStarter = "starter"
	roleKeeper  = "keeper"
	roleSpec    = "HOLDFASTCONTAINERS_SPEC"
)

func init() {
	var run func(context.Context, spec, string) error
	switch os.Getenv(role) {
	case roleStarter:
		run = startKeeper
	case roleKeeper:
		run = keep
	default:
		return
	}
	var s spec
	err := json.Unmarshal([]byte(os.Getenv(roleSpec)), &s)
	if err == nil {
		var dir string
		if dir, err = s.folder(); err == nil {
			err = run(context.Background(), s, dir)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastcontainers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startKeeper starts a keeper and waits until it has written its state.
func startKeeper(ctx context.Context, _ spec, dir string) error {
	log, err := os.Create(filepath.Join(dir, "keeper.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Env = append(os.Environ(), role+"="+roleKeeper)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.Tick(20 * time.Millisecond); ; {
		if _, err := readState(dir); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			if _, unread := readState(dir); unread == nil {
				return nil
			}
			return fmt.Errorf("the keeper ended: %w; its output is in %s", err, log.Name())
		case <-tick:
		}
	}
}

// keep starts the backend, and removes it when nobody has used it for some time.
func keep(ctx context.Context, s spec, dir string) error {
	lock := flock.New(filepath.Join(dir, "keeper.lock"))
	if locked, err := lock.TryLock(); err != nil || !locked {
		return errors.Join(err, errors.New("another keeper has the lock"))
	}
	defer func() { _ = lock.Close() }()
	starting, cancel := context.WithTimeout(ctx, startLimit)
	servers, err := start(starting, s)
	cancel()
	if err != nil {
		return errors.Join(err, state{Error: err.Error()}.write(dir))
	}
	if err := (state{Hosts: servers.hosts, Containers: servers.ids(), Keeper: os.Getpid()}).write(dir); err != nil {
		return errors.Join(err, servers.remove())
	}
	begin := flock.New(filepath.Join(dir, "start.lock"))
	use := flock.New(filepath.Join(dir, "use.lock"))
	for used := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		switch idle, err := unused(begin, use); {
		case err != nil:
			return errors.Join(err, servers.remove())
		case !idle:
			used = time.Now()
		case time.Since(used) < s.Idle:
			if err := begin.Unlock(); err != nil {
				return errors.Join(err, servers.remove())
			}
		default: // begin stays locked until this process has ended, also if garbage is collected meanwhile
			defer runtime.KeepAlive(begin)
			return errors.Join(os.Remove(filepath.Join(dir, "state.json")), servers.remove())
		}
	}
}

// unused reports whether no process uses the backend. Then begin is locked: no other can begin to.
func unused(begin, use *flock.Flock) (bool, error) {
	if locked, err := begin.TryLock(); err != nil || !locked {
		return false, err
	}
	locked, err := use.TryLock()
	if err == nil && locked {
		return true, use.Unlock()
	}
	return false, errors.Join(err, begin.Unlock())
}
