package mongotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/internal/testservers"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	host         = "127.0.0.1"
)

// process is one mongod with a port and a folder that stay its own over
// restarts. Its methods are not safe for concurrent use.
type process struct {
	path string
	args []string
	env  []string // besides the environment of the tests
	dir  string
	port int
	hold *flock.Flock // keeps other test processes off the port

	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{} // closed once the process has been waited for
}

// newProcess reserves a port and a folder under base.
func newProcess(ctx context.Context, path, base string, args ...string) (*process, error) {
	port, hold, err := reservePort(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, strconv.Itoa(port))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errors.Join(err, hold.Unlock())
	}
	return &process{path: path, args: args, dir: dir, port: port, hold: hold}, nil
}

// reservePort picks a free port below the range that systems use for outgoing
// connections, so that nothing takes it while a killed member is down, and
// locks a file named for it, so that test binaries that run at the same time
// do not meet.
func reservePort(ctx context.Context) (int, *flock.Flock, error) {
	const first, count, tries = 21000, 11000, 200
	dir := filepath.Join(os.TempDir(), "holdfast-mongotest-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, nil, err
	}
	for range tries {
		port := first + rand.IntN(count)
		hold := flock.New(filepath.Join(dir, strconv.Itoa(port)))
		if ok, err := hold.TryLock(); err != nil || !ok {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil && l.Close() == nil {
			return port, hold, nil
		}
		_ = hold.Unlock()
	}
	return 0, nil, fmt.Errorf("no free port found among %d tried from %d up", tries, first)
}

func (p *process) addr() string { return net.JoinHostPort(host, strconv.Itoa(p.port)) }

func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// start runs mongod and returns without waiting until it answers. mongod outlives
// ctx.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "mongod.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return errors.Join(err, log.Close())
	}
	args := append([]string{"--dbpath", data, "--port", strconv.Itoa(p.port)}, p.args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if len(p.env) > 0 {
		cmd.Env = append(os.Environ(), p.env...)
	}
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended does not matter: it is killed at the end
	}()
	p.cmd, p.log, p.exited = cmd, log, exited
	return nil
}

// ready waits until mongod takes connections.
func (p *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.exited:
			return fmt.Errorf("mongod ended at its start: %s", p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("mongod on port %d does not answer: %w: %s", p.port, ctx.Err(), p.logTail())
		case <-tick.C:
		}
	}
}

func (p *process) logTail() string {
	out, err := os.ReadFile(filepath.Join(p.dir, "mongod.log"))
	if err != nil {
		return err.Error()
	}
	return testservers.Tail(out)
}

// kill ends mongod at once (SIGKILL), paused or not, and waits until it is gone.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		return fmt.Errorf("mongod %d does not end", p.cmd.Process.Pid)
	}
	p.cmd = nil
	return p.log.Close()
}

// remove kills mongod and gives its port and folder back.
func (p *process) remove() error {
	return errors.Join(p.kill(), p.hold.Unlock(), os.RemoveAll(p.dir))
}
