package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Where a container has the library that moves its clock, and the clock's offset.
const (
	shimPath   = "/holdfast-clock.so"
	offsetPath = "/holdfast-clock"
)

// container is a server in a container on a network of its own, at a fixed address.
type container struct {
	engine    *engine
	ctr       testcontainers.Container
	image     string
	network   *network
	at        string // host:port
	direct    string // its address on a second network, or "" if it is on Docker's default network
	fakeClock bool
}

// containers describes servers that are started together.
type containers struct {
	what        string // for errors
	name, image string // the name is that in their network, before their number
	port, ready string // ready is what the log says then
	// twoNetworks: they are not on Docker's default network, which gives a container another address after a restart, but on a second
	// one of their own. It is for clients on the side of a member that is cut off from the first network.
	twoNetworks bool
	fakeClock   bool
	// run starts one, with these options and others; see [notNil].
	run func(ctx context.Context, opts ...testcontainers.ContainerCustomizer) (testcontainers.Container, error)
}

// notNil is the result of containers.run: without a container it is nil, and no nil pointer.
func notNil[C interface {
	comparable
	testcontainers.Container
}](ctr C, err error) (testcontainers.Container, error) {
	var none C
	if ctr == none {
		return nil, err
	}
	return ctr, err
}

// startContainers starts n containers at the same time. After an error none is left.
func startContainers(ctx context.Context, n int, spec containers) (_ *servers, err error) {
	s := &servers{what: spec.what}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start %s: %w", spec.what, err), s.terminate())
		}
	}()
	clock, err := clockOption(spec.fakeClock)
	if err != nil {
		return nil, err
	}
	networks := make([]*network, 1, 2)
	if spec.twoNetworks {
		networks = networks[:2]
	}
	for i := range networks {
		if networks[i], err = newNetwork(ctx, suite.engine); err != nil {
			return nil, err
		}
		s.rest = append(s.rest, networks[i].remove)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		c := &container{engine: suite.engine, image: spec.image, network: networks[0], fakeClock: spec.fakeClock,
			at: net.JoinHostPort(networks[0].address(i).String(), spec.port)}
		s.all = append(s.all, c)
		wg.Go(func() { errs[i] = c.run(ctx, i, spec, clock, networks[1:]) })
	}
	wg.Wait()
	return s, errors.Join(errs...)
}

// run starts the i-th container, and waits until it accepts connections. It must be terminated even after an error.
func (c *container) run(ctx context.Context, i int, spec containers, clock testcontainers.CustomizeRequestOption,
	second []*network) (err error) {
	attach := c.network.attach
	if len(second) > 0 {
		attach = c.network.attachOnly
	}
	c.ctr, err = spec.run(ctx, attach(c.network.address(i), fmt.Sprint(spec.name, i)), clock,
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog(spec.ready)))
	for _, n := range second {
		if err == nil {
			c.direct = net.JoinHostPort(n.address(i).String(), spec.port)
			err = n.connect(ctx, c, c.direct)
		}
	}
	if err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// clockOption adds the shim and its offset file to a container.
func clockOption(fake bool) (testcontainers.CustomizeRequestOption, error) {
	if !fake {
		return func(*testcontainers.GenericContainerRequest) error { return nil }, nil
	}
	shim, err := serverprocess.ClockShim()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return func(req *testcontainers.GenericContainerRequest) error {
		return errors.Join(
			testcontainers.WithFiles(
				testcontainers.ContainerFile{Reader: bytes.NewReader(shim), ContainerFilePath: shimPath, FileMode: 0o755},
				testcontainers.ContainerFile{Reader: bytes.NewReader(serverprocess.ClockOffset(0)), ContainerFilePath: offsetPath, FileMode: 0o644},
			)(req),
			testcontainers.WithEnv(map[string]string{"LD_PRELOAD": shimPath, serverprocess.ClockVariable: offsetPath})(req),
		)
	}, nil
}

// setClock writes the file in place, since the shim has mapped it.
func (c *container) setClock(ctx context.Context, offset time.Duration) error {
	if !c.fakeClock {
		return errNoClock
	}
	var octal strings.Builder
	for _, b := range serverprocess.ClockOffset(offset) {
		fmt.Fprintf(&octal, `\%03o`, b)
	}
	script := fmt.Sprintf("printf '%s' | dd of=%s conv=notrunc 2>/dev/null", octal.String(), offsetPath)
	code, _, err := c.ctr.Exec(ctx, []string{"sh", "-c", script})
	if err == nil && code != 0 {
		err = fmt.Errorf("dd ended with %d", code)
	}
	return err
}

func (c *container) String() string {
	return fmt.Sprintf("container %.12s of %s at %s", c.ctr.GetContainerID(), c.image, c.at)
}

func (c *container) addr() string { return c.at }

func (c *container) directAddr(ctx context.Context) (string, error) {
	if c.direct != "" {
		return c.direct, nil
	}
	return c.network.directAddress(ctx, c)
}

// kill also ends a server that is frozen, which the engine refuses; it runs for a moment before.
func (c *container) kill(ctx context.Context) error {
	found, err := c.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
	switch {
	case err != nil || !found.Container.State.Running:
		return err
	case found.Container.State.Paused:
		if err := c.resume(ctx); err != nil {
			return err
		}
	}
	return c.end(ctx, "SIGKILL")
}

func (c *container) stop(ctx context.Context) error { return c.end(ctx, "SIGINT") }

// end sends a signal that ends the server, and waits until the container does not run.
func (c *container) end(ctx context.Context, signal string) error {
	_, err := c.engine.ContainerKill(ctx, c.ctr.GetContainerID(), client.ContainerKillOptions{Signal: signal})
	return errors.Join(err, retry(ctx, func() error {
		state, err := c.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
		if err == nil && state.Container.State.Running {
			err = errors.New("the container still runs")
		}
		return err
	}))
}

func (c *container) start(ctx context.Context) error {
	if _, err := c.engine.ContainerStart(ctx, c.ctr.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// pause stops all processes of a container. On a busy machine the engine may give up before the kernel has stopped them.
func (c *container) pause(ctx context.Context) error {
	for tries := 1; ; tries++ {
		_, err := c.engine.ContainerPause(ctx, c.ctr.GetContainerID(), client.ContainerPauseOptions{})
		if err == nil || tries == 10 || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
	}
}

func (c *container) resume(ctx context.Context) error {
	_, err := c.engine.ContainerUnpause(ctx, c.ctr.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

func (c *container) cutOff(ctx context.Context) error { return c.network.cutOff(ctx, c) }

// rejoin waits until a server that runs accepts connections again.
func (c *container) rejoin(ctx context.Context) error {
	if err := c.network.connect(ctx, c, c.at); err != nil {
		return err
	}
	found, err := c.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil || !found.Container.State.Running || found.Container.State.Paused {
		return err
	}
	return c.awaitReady(ctx)
}

// awaitReady waits until the server accepts connections at its address.
func (c *container) awaitReady(ctx context.Context) error {
	err := retry(ctx, func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", c.at)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("container %.12s does not answer at %s: %w; %s (containers are reached at their own addresses. "+
			"That works if the engine runs on this Linux machine, but not with Docker Desktop; there, set %s=%s)",
			c.ctr.GetContainerID(), c.at, err, c.state(), ModeVariable, Processes)
	}
	return nil
}

// state describes the state of the container, for an error.
func (c *container) state() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found, err := c.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return err.Error()
	}
	state := found.Container.State
	description := fmt.Sprintf("its state is %s, exit code %d, %s", state.Status, state.ExitCode, state.Error)
	logs, err := c.engine.ContainerLogs(ctx, c.ctr.GetContainerID(), client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true,
		Tail: "3"})
	if err != nil {
		return description
	}
	defer func() { _ = logs.Close() }()
	text, _ := io.ReadAll(io.LimitReader(logs, 2000))
	return description + fmt.Sprintf(", its log ends with %q", text)
}

func (c *container) terminate() error {
	if c.ctr == nil {
		return nil
	}
	return testcontainers.TerminateContainer(c.ctr, testcontainers.StopTimeout(0))
}

// retry calls attempt until it succeeds, for at most three minutes. On a busy machine Azurite can
// take more than one minute to start.
func retry(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
