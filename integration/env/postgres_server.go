package env

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	dockernet "github.com/moby/moby/api/types/network"

	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
	"github.com/holdfast-go/holdfast/test/testservers"
)

// postgresScript starts a server in a container or as a process.
//
//go:embed postgres.sh
var postgresScript string

// followLines numbers the lines that make a server a standby, so that each is used once.
var followLines atomic.Int64

func followLine(host, port, name string) []byte {
	return fmt.Appendf(nil, "%s %s %s %d\n", host, port, name, followLines.Add(1))
}

func postgresEnv() map[string]string {
	return map[string]string{"ADMIN": postgrestest.AdminUser, "PGPASSWORD": postgrestest.AdminPassword, "LC_ALL": "C"}
}

// postgresContainer is a server in a container on two networks. On both its address is fixed, unlike that on Docker's
// default network. The other members and most clients use the first. The second is for clients on its side when it is
// cut off from the first.
type postgresContainer struct {
	server
	direct *network
	at     string // its address on the second network
}

const (
	postgresPort       = "5432"
	postgresFolder     = "/tmp/holdfast"
	postgresFollowPath = "/tmp/holdfast-follow"
)

func startPostgresContainers(ctx context.Context, _ string, members int) (_ *postgresServers, err error) {
	s := &postgresServers{terminate: func() error { return nil }}
	first, err := newNetwork(ctx, suite.engine)
	if err != nil {
		return s, err
	}
	second, err := newNetwork(ctx, suite.engine)
	containers := make([]*postgresContainer, members)
	s.terminate = func() error {
		var errs []error
		for _, c := range containers {
			if c != nil {
				errs = append(errs, c.terminate())
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		return errors.Join(append(errs, first.remove(ctx), second.remove(ctx))...)
	}
	if err != nil {
		return s, err
	}
	errs := make([]error, members)
	var wg sync.WaitGroup
	for i := range containers {
		wg.Go(func() { containers[i], errs[i] = newPostgresContainer(ctx, first, second, i) })
	}
	wg.Wait()
	for _, c := range containers {
		s.members = append(s.members, c)
	}
	return s, errors.Join(errs...)
}

// newPostgresContainer starts a server. The result must be terminated even after an error.
func newPostgresContainer(ctx context.Context, first, second *network, i int) (*postgresContainer, error) {
	own, direct := first.address(i), second.address(i)
	c := &postgresContainer{direct: second, at: net.JoinHostPort(direct.String(), postgresPort),
		server: server{engine: suite.engine, network: first, addr: net.JoinHostPort(own.String(), postgresPort)}}
	ctr, err := testcontainers.Run(ctx, PostgresImage(), first.attachOnly(own, fmt.Sprint("postgres", i)),
		testcontainers.WithEntrypoint("sh", "-c", postgresScript, "sh", postgresFolder, postgresPort, postgresFollowPath),
		testcontainers.WithConfigModifier(func(c *container.Config) { c.User = "postgres" }), testcontainers.WithEnv(postgresEnv()),
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog("ready to accept")))
	if ctr != nil {
		c.ctr = ctr
	}
	if err != nil {
		return c, err
	}
	_, err = c.engine.NetworkConnect(ctx, second.docker.ID, client.NetworkConnectOptions{
		Container:      c.ctr.GetContainerID(),
		EndpointConfig: &dockernet.EndpointSettings{IPAMConfig: &dockernet.EndpointIPAMConfig{IPv4Address: direct}},
	})
	return c, errors.Join(err, c.awaitReady(ctx))
}

func (c *postgresContainer) addr() string       { return c.server.addr }
func (c *postgresContainer) directAddr() string { return c.at }

// kill also ends a server that is frozen, which the engine refuses; it runs for a moment before.
func (c *postgresContainer) kill(ctx context.Context) error {
	found, err := c.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
	switch {
	case err != nil || !found.Container.State.Running:
		return err
	case found.Container.State.Paused:
		if err := c.resume(ctx); err != nil {
			return err
		}
	}
	return c.server.kill(ctx)
}

func (c *postgresContainer) restart(ctx context.Context) error { return c.start(ctx) }
func (c *postgresContainer) cutOff(ctx context.Context) error {
	return c.network.cutOff(ctx, &c.server)
}

func (c *postgresContainer) rejoin(ctx context.Context) error {
	return c.network.rejoin(ctx, &c.server)
}

func (c *postgresContainer) follow(ctx context.Context, host, port, name string) error {
	return c.ctr.CopyToContainer(ctx, followLine(host, port, name), postgresFollowPath, 0o644)
}

// postgresProcess is a server as a local process, on loopback.
type postgresProcess struct {
	s    *serverprocess.Server
	file string // with the line of follow
}

func startPostgresProcesses(ctx context.Context, dir string, members int) (*postgresServers, error) {
	s := &postgresServers{}
	s.terminate = func() error {
		var errs []error
		for _, m := range s.members {
			errs = append(errs, m.terminate())
		}
		return errors.Join(errs...)
	}
	bin, err := testservers.PostgresBin.Path(ctx)
	if err != nil {
		return s, err
	}
	env := []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "LISTEN=" + serverprocess.Host}
	for name, value := range postgresEnv() {
		env = append(env, name+"="+value)
	}
	for i := range members {
		p := &postgresProcess{}
		started, err := serverprocess.Start(ctx, filepath.Join(dir, strconv.Itoa(i)), serverprocess.Config{
			Name: "PostgreSQL", Program: "/bin/sh", Env: env, Unprivileged: true,
			Args: func(port, data string) []string {
				p.file = filepath.Join(data, "follow")
				return []string{"-c", postgresScript, "sh", data, port, p.file}
			},
			Ready: func(ctx context.Context, port string) bool {
				return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "-q", "-h", serverprocess.Host, "-p", port).Run() == nil
			},
		})
		if err != nil {
			return s, err
		}
		p.s = started[0]
		s.members = append(s.members, p)
	}
	return s, nil
}

func (p *postgresProcess) addr() string                      { return p.s.Addr() }
func (p *postgresProcess) directAddr() string                { return p.s.Addr() }
func (p *postgresProcess) kill(context.Context) error        { return p.s.Kill() }
func (p *postgresProcess) restart(ctx context.Context) error { return p.s.Restart(ctx) }
func (p *postgresProcess) pause(context.Context) error       { return p.s.Pause() }
func (p *postgresProcess) resume(context.Context) error      { return p.s.Resume() }
func (p *postgresProcess) terminate() error                  { return p.s.Remove() }

func (p *postgresProcess) cutOff(context.Context) error {
	return fmt.Errorf("%w: processes on loopback cannot be cut off from each other; containers can", ErrUnsupported)
}

func (p *postgresProcess) rejoin(ctx context.Context) error { return p.cutOff(ctx) }

func (p *postgresProcess) follow(_ context.Context, host, port, name string) error {
	return os.WriteFile(p.file, followLine(host, port, name), 0o644) //nolint:gosec // the server's user reads it
}
