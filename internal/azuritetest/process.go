package azuritetest

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

// process is one Azurite with a port and a folder that stay its own over
// restarts. Its methods are not safe for concurrent use.
type process struct {
	path    string
	dir     string
	persist bool
	port    int
	hold    *flock.Flock // keeps other test processes off the port

	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{} // closed once the process has been waited for
}

// newProcess reserves a port.
func newProcess(ctx context.Context, path, dir string, persist bool) (*process, error) {
	port, hold, err := reservePort(ctx)
	if err != nil {
		return nil, err
	}
	return &process{path: path, dir: dir, persist: persist, port: port, hold: hold}, nil
}

// reservePort picks a free port below the range that systems use for outgoing
// connections, so that nothing takes it while a killed server is down, and
// locks a file named for it, so that test binaries that run at the same time
// do not meet.
func reservePort(ctx context.Context) (int, *flock.Flock, error) {
	const first, count, tries = 12000, 8000, 200
	dir := filepath.Join(os.TempDir(), "holdfast-azuritetest-ports")
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

// start runs Azurite and waits until it takes connections.
func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "azurite.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	args := []string{p.path, "--blobHost", host, "--blobPort", strconv.Itoa(p.port),
		"--skipApiVersionCheck", "--disableTelemetry", "--silent"}
	if p.persist {
		args = append(args, "--location", p.dir)
	} else {
		args = append(args, "--inMemoryPersistence")
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", args...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("%w; %s", err, testservers.AzuriteAdvice), log.Close())
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended does not matter: it is killed at the end
	}()
	p.cmd, p.log, p.exited = cmd, log, exited
	return p.ready(ctx)
}

// ready waits until Azurite takes connections.
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
			return fmt.Errorf("the emulator ended at its start: %s", p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the emulator on port %d does not answer: %w: %s", p.port, ctx.Err(), p.logTail())
		case <-tick.C:
		}
	}
}

func (p *process) logTail() string {
	out, err := os.ReadFile(filepath.Join(p.dir, "azurite.log"))
	if err != nil {
		return err.Error()
	}
	return testservers.Tail(out)
}

// stop ends Azurite, paused or not, and waits until it is gone. What it keeps
// on disk is written by the signal to end; only one that does not follow it,
// because it is paused, is killed.
func (p *process) stop() error {
	if p.cmd != nil && p.persist && interrupt(p.cmd.Process) == nil {
		select {
		case <-p.exited:
		case <-time.After(stopTimeout / 2):
		}
	}
	return p.kill()
}

// kill ends Azurite at once (SIGKILL) and waits until it is gone.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		return fmt.Errorf("the emulator, process %d, does not end", p.cmd.Process.Pid)
	}
	p.cmd = nil
	return p.log.Close()
}

// remove ends Azurite and gives its port back.
func (p *process) remove() error { return errors.Join(p.stop(), p.hold.Unlock()) }
