package env

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"

	"github.com/holdfast-go/holdfast/internal/owner"
)

// network is a Docker network of one environment. Its containers have fixed addresses, which they
// keep when they are restarted, or cut off and connected again.
type network struct {
	engine *engine
	docker *testcontainers.DockerNetwork
	subnet netip.Prefix
}

// newNetwork creates a network in the range reserved for network tests (198.18.0.0/15, RFC 2544),
// which is unlikely to be in use.
func newNetwork(ctx context.Context, e *engine) (*network, error) {
	const attempts = 50
	var err error
	for range attempts {
		n := rand.IntN(1 << 13) // a /28 in a /15
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + n>>12), byte(n >> 4), byte(n << 4)}), 28)
		var docker *testcontainers.DockerNetwork
		docker, err = tcnetwork.New(ctx, tcnetwork.WithIPAM(&dockernet.IPAM{
			Config: []dockernet.IPAMConfig{{Subnet: subnet, Gateway: subnet.Addr().Next()}},
		}), tcnetwork.WithLabels(owner.Labels()))
		if err == nil {
			return &network{engine: e, docker: docker, subnet: subnet}, nil
		}
		if !strings.Contains(err.Error(), "overlap") {
			break
		}
	}
	return nil, fmt.Errorf("create a network: %w", err)
}

// address returns the address of the i-th container; .1 is the gateway.
func (n *network) address(i int) netip.Addr {
	addr := n.subnet.Addr().Next().Next()
	for range i {
		addr = addr.Next()
	}
	return addr
}

// attach connects a container to this network at an address, and to Docker's default network,
// where this machine can reach it even while it is cut off.
func (n *network) attach(addr netip.Addr, name string) testcontainers.CustomizeRequestOption {
	return func(req *testcontainers.GenericContainerRequest) error {
		return errors.Join(n.attachOnly(addr, name)(req), tcnetwork.WithBridgeNetwork()(req))
	}
}

// attachOnly connects a container to this network at an address.
func (n *network) attachOnly(addr netip.Addr, name string) testcontainers.CustomizeRequestOption {
	return func(req *testcontainers.GenericContainerRequest) error {
		return errors.Join(
			tcnetwork.WithNetwork([]string{name}, n.docker)(req),
			testcontainers.WithLabels(owner.Labels())(req),
			testcontainers.WithEndpointSettingsModifier(func(settings map[string]*dockernet.EndpointSettings) {
				settings[n.docker.Name].IPAMConfig = &dockernet.EndpointIPAMConfig{IPv4Address: addr}
			})(req),
		)
	}
}

func (n *network) cutOff(ctx context.Context, c *container) error {
	_, err := n.engine.NetworkDisconnect(ctx, n.docker.ID, client.NetworkDisconnectOptions{Container: c.ctr.GetContainerID()})
	return err
}

// connect gives a container an address, host:port, in this network.
func (n *network) connect(ctx context.Context, c *container, at string) error {
	addr, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	_, err = n.engine.NetworkConnect(ctx, n.docker.ID, client.NetworkConnectOptions{
		Container:      c.ctr.GetContainerID(),
		EndpointConfig: &dockernet.EndpointSettings{IPAMConfig: &dockernet.EndpointIPAMConfig{IPv4Address: addr.Addr()}},
	})
	return err
}

// directAddress returns the host and port at which this machine reaches a container, cut off or
// not.
func (n *network) directAddress(ctx context.Context, c *container) (string, error) {
	state, err := n.engine.ContainerInspect(ctx, c.ctr.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	bridge := state.Container.NetworkSettings.Networks["bridge"]
	addr, err := netip.ParseAddrPort(c.at)
	if err != nil {
		return "", err
	}
	if bridge == nil || !bridge.IPAddress.IsValid() {
		return "", fmt.Errorf("container %.12s is not on Docker's default network", c.ctr.GetContainerID())
	}
	return netip.AddrPortFrom(bridge.IPAddress, addr.Port()).String(), nil
}

func (n *network) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return n.docker.Remove(ctx)
}
