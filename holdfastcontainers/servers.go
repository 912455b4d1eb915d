package holdfastcontainers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/internal/owner"
)

// servers are the containers of a backend.
type servers struct {
	hosts      []string // their addresses
	containers []*testcontainers.DockerContainer
}

func (s *servers) ids() (list []string) {
	for _, c := range s.containers {
		list = append(list, c.GetContainerID())
	}
	return list
}

func (s *servers) remove() error {
	var errs []error
	for _, c := range s.containers {
		errs = append(errs, testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)))
	}
	return errors.Join(errs...)
}

// start starts a backend and waits until it is ready.
func start(ctx context.Context, s spec) (*servers, error) {
	docker, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, noEngineError(err)
	}
	defer func() { _ = docker.Close() }()
	host, err := docker.DaemonHost(ctx)
	if err != nil {
		return nil, noEngineError(err)
	}
	if err := removeLeftovers(ctx, docker.Client()); err != nil {
		return nil, noEngineError(err)
	}
	if host == "localhost" {
		host = "127.0.0.1" // the published ports are IPv4's
	}
	found := &servers{}
	switch s.Kind {
	case kindAzurite:
		err = found.startAzurite(ctx, s, host)
	case kindPostgres:
		err = found.startPostgres(ctx, s, host)
	default:
		err = found.startMongo(ctx, s, host)
	}
	if err != nil {
		return nil, errors.Join(err, found.remove())
	}
	return found, nil
}

func noEngineError(err error) error { return fmt.Errorf("no Docker engine answers: %w", err) }

// removeLeftovers removes the containers of keepers of this machine that were killed.
func removeLeftovers(ctx context.Context, docker client.APIClient) error {
	labelled, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", owner.Label)})
	if err != nil {
		return err
	}
	for _, c := range labelled.Items {
		if owner.Gone(c.Labels) {
			fmt.Printf("removing container %.12s, whose process has ended\n", c.ID)
			_, _ = docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		}
	}
	return nil
}

// run starts one container. The result, if not nil, must be removed even after an error.
func (s *servers) run(ctx context.Context, image, ready string, opts ...testcontainers.ContainerCustomizer) error {
	c, err := testcontainers.Run(ctx, image, append(opts, testcontainers.WithLabels(owner.Labels()),
		testcontainers.WithWaitStrategyAndDeadline(3*time.Minute, wait.ForLog(ready)))...)
	if c != nil {
		s.containers = append(s.containers, c)
	}
	return err
}

func (s *servers) startAzurite(ctx context.Context, sp spec, host string) error {
	err := s.run(ctx, sp.Image, "successfully listen", testcontainers.WithExposedPorts("10000/tcp"), testcontainers.WithCmd(
		"azurite-blob", "--blobHost", "0.0.0.0", "--blobPort", "10000", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
		"--silent"))
	if err != nil {
		return err
	}
	return s.publishedAt(ctx, host, "10000/tcp")
}

// publishedAt finds the address of a backend of one container.
func (s *servers) publishedAt(ctx context.Context, host, inside string) error {
	port, err := s.containers[0].MappedPort(ctx, inside)
	if err != nil {
		return err
	}
	s.hosts = []string{net.JoinHostPort(host, strconv.Itoa(int(port.Num())))}
	return nil
}

func (s *servers) startPostgres(ctx context.Context, sp spec, host string) error {
	err := s.run(ctx, sp.Image, "ready to accept connections", testcontainers.WithExposedPorts("5432/tcp"),
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": postgresPassword}),
		testcontainers.WithCmd("postgres", "-c", "max_connections=500", "-c", "fsync=off"))
	if err != nil {
		return err
	}
	if err := s.publishedAt(ctx, host, "5432/tcp"); err != nil {
		return err
	}
	// The image first starts a server that only makes the database, and then the one to use.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := onPostgres(ctx, postgresURL(s.hosts[0], "postgres"), "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// startMongo starts the members of a replica set. Members and clients must reach each other at the
// same addresses. So all members have the network of the first, each listens at the port that is
// published for it, and inside the containers the name of the engine's host is their own.
func (s *servers) startMongo(ctx context.Context, sp spec, host string) error {
	const attempts = 5
	for n := 1; ; n++ {
		err := s.startMembers(ctx, sp, host)
		if err == nil {
			break
		}
		removed := s.remove()
		*s = servers{}
		if taken := strings.Contains(err.Error(), "already allocated") || strings.Contains(err.Error(), "address already in use"); !taken ||
			n == attempts {
			return errors.Join(err, removed)
		}
	}
	// The long timeout avoids an election on a busy machine.
	_, err := mongoset.Initiate(ctx, s.hosts, mongoset.Options{Members: sp.Members, ElectionTimeout: 10 * time.Second})
	return err
}

func (s *servers) startMembers(ctx context.Context, sp spec, host string) error {
	ports, err := freePorts(ctx, sp.Members)
	if err != nil {
		return err
	}
	var exposed []string
	published := network.PortMap{}
	for _, port := range ports {
		s.hosts = append(s.hosts, net.JoinHostPort(host, port))
		exposed = append(exposed, port+"/tcp")
		published[network.MustParsePort(port+"/tcp")] = []network.PortBinding{{HostIP: onlyLocal(host), HostPort: port}}
	}
	for i, port := range ports {
		args := append(mongoset.Arguments(mongoset.Options{Members: sp.Members}), "--port", port)
		opts := []testcontainers.ContainerCustomizer{testcontainers.WithCmd(args...)}
		if i == 0 {
			opts = append(opts, testcontainers.WithExposedPorts(exposed...))
		}
		opts = append(opts, testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			if i > 0 {
				c.NetworkMode = container.NetworkMode("container:" + s.containers[0].GetContainerID())
				return
			}
			c.PortBindings = published
			if _, err := netip.ParseAddr(host); err != nil {
				c.ExtraHosts = append(c.ExtraHosts, host+":127.0.0.1")
			}
		}))
		if err := s.run(ctx, sp.Image, "Waiting for connections", opts...); err != nil {
			return err
		}
	}
	return nil
}

// onlyLocal returns the address at which ports are published: this machine's own, which others do
// not reach, or any.
func onlyLocal(host string) netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return addr
	}
	return netip.Addr{}
}

// freePorts returns ports that no process of this machine listens at.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // after all are found: they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
