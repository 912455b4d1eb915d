// Package serverprocess runs the servers that tests need: processes on loopback, each with a
// port and a folder of its own. A test can kill, stop, pause and restart them.
//
// No server outlives the tests: [Server.Remove] ends it, and on Linux the kernel kills it when
// the test process dies before that.
package serverprocess

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
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// Host is the address on which every server listens.
const Host = "127.0.0.1"

const (
	startTimeout = 5 * time.Minute  // it guards against a hang: beside other work Azurite has taken more than one
	stopTimeout  = 10 * time.Second // of an orderly stop
	killTimeout  = 2 * time.Minute  // on a busy machine the end of a mongod may take more than 20 s
	pauseTimeout = time.Minute
)

// Config describes a server.
type Config struct {
	Name    string // for error messages
	Program string // an absolute path, or the name of a program on PATH
	// Args returns the arguments that make the server listen on [Host] at port, and keep
	// its data in the folder data.
	Args func(port, data string) []string
	Env  []string // variables in addition to the environment of the tests
	// Clock is the server's wall clock; nil means the machine's.
	Clock *Clock
	// Unprivileged is for a server that refuses to run as root. If the tests run as root, the
	// server runs as another user, who owns the folder data.
	Unprivileged bool
	// Prepare, if not nil, fills the folder data before the first start. It runs programs
	// with run, as the user who runs the server.
	Prepare func(ctx context.Context, port, data string, run func(program string, args ...string) error) error
	// Ready, if not nil, reports whether the server is ready; nil means that it accepts a connection.
	Ready func(ctx context.Context, port string) bool
}

// Server is a process that keeps its port, data and log over restarts. Its methods are safe
// for concurrent use.
type Server struct {
	config   Config
	dir      string // holds the data and the log
	port     string
	portLock *flock.Flock // keeps other test processes from using the port

	mu      sync.Mutex // held while the process is started, signaled or ended
	process *os.Process
	exited  chan struct{} // closed when the process has ended; nil before the first start
}

// Start starts servers with their folders under base, and returns when all of them accept
// connections. They outlive ctx. After an error none of them is left.
func Start(ctx context.Context, base string, configs ...Config) (_ []*Server, err error) {
	var servers []*Server
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(servers))
		}
	}()
	for _, config := range configs {
		port, portLock, err := reservePort(ctx, portCount)
		if err != nil {
			return nil, err
		}
		s := &Server{config: config, dir: filepath.Join(base, port), port: port, portLock: portLock}
		servers = append(servers, s)
		if err := s.prepare(ctx); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", config.Name, err)
		}
		if err := s.start(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range servers {
		if err := s.waitReady(ctx); err != nil {
			return nil, err
		}
	}
	return servers, nil
}

// StartOne is [Start] for a single server.
func StartOne(ctx context.Context, base string, config Config) (*Server, error) {
	servers, err := Start(ctx, base, config)
	if err != nil {
		return nil, err
	}
	return servers[0], nil
}

// Remove removes all of the servers.
func Remove(servers []*Server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Remove())
	}
	return errors.Join(errs...)
}

// The ports of servers are below those that systems choose for outgoing connections. So nothing
// takes the port of a killed server.
const firstPort, portCount = 12000, 20000

// reservePort picks a free port, one of the first count, and locks a file named after it, so that test
// processes that run at the same time use different ports.
func reservePort(ctx context.Context, count int) (string, *flock.Flock, error) {
	const tries = 200
	dir := filepath.Join(os.TempDir(), "holdfast-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // shared by the users of the machine
		return "", nil, err
	}
	for range tries {
		port := strconv.Itoa(firstPort + rand.IntN(count))
		lock := flock.New(filepath.Join(dir, port))
		if locked, err := lock.TryLock(); err != nil || !locked {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(Host, port))
		if err == nil && l.Close() == nil {
			return port, lock, nil
		}
		_ = lock.Unlock()
	}
	return "", nil, fmt.Errorf("no free port found in %d tries from %d to %d", tries, firstPort, firstPort+count-1)
}

// ReservePort returns a port on [Host] that no other server of tests uses until the test ends. It is for one that a server needs in
// addition, such as that on which the members of a cluster reach each other.
func ReservePort(tb testing.TB) string {
	tb.Helper()
	port, lock, err := reservePort(tb.Context(), portCount)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = lock.Unlock() })
	return port
}

// ReserveAddress is [ReservePort] with the host.
func ReserveAddress(tb testing.TB) string {
	tb.Helper()
	return net.JoinHostPort(Host, ReservePort(tb))
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort(Host, s.port) }

// PID is the number of the server's process, also after its end.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid
}

func (s *Server) running() bool {
	if s.exited == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// prepare makes the server's folder and fills it.
func (s *Server) prepare(ctx context.Context) error {
	if err := os.MkdirAll(s.data(), 0o700); err != nil {
		return err
	}
	if s.config.Unprivileged {
		if err := giveAway(s.data()); err != nil {
			return err
		}
	}
	if s.config.Prepare == nil {
		return nil
	}
	return s.config.Prepare(ctx, s.port, s.data(), func(program string, args ...string) error {
		cmd := exec.CommandContext(ctx, program, args...)
		if err := s.setUp(cmd); err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, testservers.Tail(out))
		}
		return nil
	})
}

// setUp sets the folder, the environment and the user of a program.
func (s *Server) setUp(cmd *exec.Cmd) error {
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), s.config.Env...), s.config.Clock.Env()...)
	cmd.SysProcAttr = childAttributes()
	if !s.config.Unprivileged {
		return nil
	}
	return runUnprivileged(cmd)
}

// start starts the process and does not wait until it is ready.
func (s *Server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.config.Program, s.config.Args(s.port, s.data())...)
	if err := s.setUp(cmd); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.config.Name, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // most are killed: the exit code says nothing
	}()
	s.process, s.exited = cmd.Process, exited
	return nil
}

// isReady reports whether the server accepts connections.
func (s *Server) isReady(ctx context.Context) bool {
	if s.config.Ready != nil {
		return s.config.Ready(ctx, s.port)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	return err == nil && conn.Close() == nil
}

// waitReady waits until the server accepts connections.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.isReady(ctx) {
		select {
		case <-s.exited:
			return fmt.Errorf("%s ended during its start: %s", s.config.Name, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not accept connections at %s: %w: %s", s.config.Name, s.Addr(), ctx.Err(), s.logTail())
		case <-tick.C:
		}
	}
	return nil
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

func (s *Server) logTail() string {
	log, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return testservers.Tail(log)
}

// Restart starts the server again, unless it runs, and returns when it accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return nil
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.waitReady(ctx)
}

// Kill ends the server and its child processes as a crash does (SIGKILL), paused or not, and returns
// when all have ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

// Crash kills the server, and returns when it has started again, also if ctx ends meanwhile.
func (s *Server) Crash(ctx context.Context) error {
	return errors.Join(s.Kill(), s.Restart(context.WithoutCancel(ctx)))
}

// Stop has the server end in good order (SIGTERM), and kills it if it does not, for example
// because it is paused. It returns when the server has ended.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signal(stopSignal) == nil {
		select {
		case <-s.exited:
		case <-time.After(stopTimeout):
		}
	}
	return s.kill()
}

func (s *Server) kill() error {
	if !s.running() {
		return nil
	}
	var children []int
	if s.signal(pauseSignal) == nil { // so that it starts no further child
		_ = s.waitPaused()
		children = childrenOf(s.process.Pid)
	}
	_ = s.process.Kill() // it fails only if the process has ended
	for _, pid := range children {
		signalChild(pid, os.Kill)
	}
	timeout := time.After(killTimeout)
	select {
	case <-s.exited:
	case <-timeout:
		return fmt.Errorf("%s (process %d) did not end within %v of being killed", s.config.Name, s.process.Pid, killTimeout)
	}
	for _, pid := range children {
		for ; !hasEnded(pid); time.Sleep(time.Millisecond) {
			select {
			case <-timeout:
				return fmt.Errorf("process %d of %s did not end within %v of being killed", pid, s.config.Name, killTimeout)
			default:
			}
		}
	}
	return nil
}

// Pause freezes the server and its child processes (SIGSTOP): its connections stay open, and nothing
// answers. It returns when all have stopped.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.signal(pauseSignal); err != nil {
		return err
	}
	if err := s.waitPaused(); err != nil {
		return err
	}
	children := childrenOf(s.process.Pid)
	for _, pid := range children {
		signalChild(pid, pauseSignal)
	}
	return s.waitPaused(children...)
}

// waitPaused waits until the server's process and these of its children have stopped.
func (s *Server) waitPaused(children ...int) error {
	end := time.Now().Add(pauseTimeout)
	for _, pid := range append([]int{s.process.Pid}, children...) {
		for ; !isPaused(pid) && !hasEnded(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("process %d of %s did not stop within %v of SIGSTOP", pid, s.config.Name, pauseTimeout)
			}
		}
	}
	return nil
}

// Resume ends a Pause.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range childrenOf(s.process.Pid) {
		signalChild(pid, resumeSignal)
	}
	return s.signal(resumeSignal)
}

// signalChild sends a signal to a process that may have ended.
func signalChild(pid int, sig os.Signal) {
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Signal(sig)
		_ = process.Release()
	}
}

// signal sends a signal, which is nil if the system does not have it.
func (s *Server) signal(sig os.Signal) error {
	switch {
	case !s.running():
		return fmt.Errorf("%s does not run", s.config.Name)
	case sig == nil:
		return fmt.Errorf("send a signal to %s: %w", s.config.Name, errors.ErrUnsupported)
	}
	return s.process.Signal(sig)
}

// Remove kills the server, deletes its data and releases its port.
func (s *Server) Remove() error {
	return errors.Join(s.Kill(), os.RemoveAll(s.dir), s.portLock.Unlock())
}
