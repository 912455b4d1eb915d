package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tcmongo "github.com/testcontainers/testcontainers-go/modules/mongodb"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const (
	mongoPort     = "27017"
	shimPath      = "/holdfast-clock.so"
	offsetPath    = "/holdfast-clock"
	removeTimeout = time.Minute
)

// mongoContainers are members in containers, on a network of their own.
type mongoContainers struct {
	network   *network
	servers   []*server
	fakeClock bool
}

func newMongoContainers(ctx context.Context, _, name string, opts MongoOptions) (_ *mongoset.Set, _ members, err error) {
	testing := opts.testing()
	if testing.Members == 0 {
		testing.Members = 3
	}
	c := &mongoContainers{servers: make([]*server, testing.Members), fakeClock: opts.FakeClock}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start a replica set: %w", err), c.remove())
		}
	}()
	clock, err := c.clockOption()
	if err != nil {
		return nil, nil, err
	}
	if c.network, err = newNetwork(ctx, suite.engine); err != nil {
		return nil, nil, err
	}
	errs := make([]error, testing.Members)
	var wg sync.WaitGroup
	for i := range c.servers {
		wg.Go(func() { c.servers[i], errs[i] = c.member(ctx, i, mongoset.Arguments(testing), clock) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	var hosts []string
	for i, s := range c.servers {
		hosts = append(hosts, s.addr)
		fmt.Printf("integration: %s: member %d is container %.12s of %s at %s\n", name, i, s.ctr.GetContainerID(), MongoImage(), s.addr)
	}
	set, err := mongoset.Initiate(ctx, hosts, testing)
	return set, c, err
}

// member starts one mongod. The result must be terminated even after an error.
func (c *mongoContainers) member(ctx context.Context, i int, args []string, clock testcontainers.CustomizeRequestOption) (*server, error) {
	addr := c.network.address(i)
	s := &server{engine: suite.engine, network: c.network, addr: net.JoinHostPort(addr.String(), mongoPort)}
	ctr, err := tcmongo.Run(ctx, MongoImage(),
		testcontainers.WithCmd(args...), c.network.attach(addr, fmt.Sprintf("mongo%d", i)), clock,
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog("Waiting for connections")),
	)
	if ctr != nil {
		s.ctr = ctr
	}
	if err != nil {
		return s, err
	}
	return s, s.awaitReady(ctx)
}

// clockOption adds the shim and its offset file to a container.
func (c *mongoContainers) clockOption() (testcontainers.CustomizeRequestOption, error) {
	if !c.fakeClock {
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
func (c *mongoContainers) setClock(ctx context.Context, member int, offset time.Duration) error {
	if !c.fakeClock {
		return errNoClock
	}
	var octal strings.Builder
	for _, b := range serverprocess.ClockOffset(offset) {
		fmt.Fprintf(&octal, `\%03o`, b)
	}
	script := fmt.Sprintf("printf '%s' | dd of=%s conv=notrunc 2>/dev/null", octal.String(), offsetPath)
	code, _, err := c.servers[member].ctr.Exec(ctx, []string{"sh", "-c", script})
	if err == nil && code != 0 {
		err = fmt.Errorf("dd ended with %d", code)
	}
	return err
}

func (c *mongoContainers) kill(ctx context.Context, i int) error    { return c.servers[i].kill(ctx) }
func (c *mongoContainers) restart(ctx context.Context, i int) error { return c.servers[i].start(ctx) }
func (c *mongoContainers) pause(ctx context.Context, i int) error   { return c.servers[i].pause(ctx) }
func (c *mongoContainers) resume(ctx context.Context, i int) error  { return c.servers[i].resume(ctx) }

func (c *mongoContainers) cutOff(ctx context.Context, i int) error {
	return c.network.cutOff(ctx, c.servers[i])
}

func (c *mongoContainers) rejoin(ctx context.Context, i int) error {
	if err := c.network.rejoin(ctx, c.servers[i]); err != nil {
		return err
	}
	return c.servers[i].awaitReady(ctx)
}

func (c *mongoContainers) directAddress(ctx context.Context, i int) (string, error) {
	return c.network.directAddress(ctx, c.servers[i])
}

func (c *mongoContainers) remove() error {
	errs := make([]error, len(c.servers))
	var wg sync.WaitGroup
	for i, s := range c.servers {
		wg.Go(func() { errs[i] = s.terminate() })
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	return errors.Join(errors.Join(errs...), c.network.remove(ctx))
}
