package env

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	dockernet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// network is a Docker network of one environment. Its containers have fixed
// addresses, which stay when they are restarted, or cut off and joined again.
type network struct {
	engine *engine
	docker *testcontainers.DockerNetwork
	subnet netip.Prefix
}

// newNetwork makes a network in the range that is set aside for tests of
// networks (198.18.0.0/15, RFC 2544), which is unlikely to be in use.
func newNetwork(ctx context.Context, e *engine) (*network, error) {
	const tries = 50
	var err error
	for range tries {
		n := rand.IntN(1 << 13) // a /28 in a /15
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + n>>12), byte(n >> 4), byte(n << 4)}), 28)
		var docker *testcontainers.DockerNetwork
		docker, err = tcnetwork.New(ctx, tcnetwork.WithIPAM(&dockernet.IPAM{
			Config: []dockernet.IPAMConfig{{Subnet: subnet, Gateway: subnet.Addr().Next()}},
		}), tcnetwork.WithLabels(owner()))
		if err == nil {
			return &network{engine: e, docker: docker, subnet: subnet}, nil
		}
		if !strings.Contains(err.Error(), "overlap") {
			break
		}
	}
	return nil, fmt.Errorf("make a network: %w", err)
}

// address is the i-th for a container; .1 is the gateway's.
func (n *network) address(i int) netip.Addr {
	addr := n.subnet.Addr().Next().Next()
	for range i {
		addr = addr.Next()
	}
	return addr
}

// at puts a container on this network, at an address, and on Docker's default one,
// by which this machine reaches it also while it is cut off.
func (n *network) at(addr netip.Addr, name string) testcontainers.CustomizeRequestOption {
	return func(req *testcontainers.GenericContainerRequest) error {
		return errors.Join(
			tcnetwork.WithNetwork([]string{name}, n.docker)(req),
			tcnetwork.WithBridgeNetwork()(req),
			testcontainers.WithLabels(owner())(req),
			testcontainers.WithEndpointSettingsModifier(func(settings map[string]*dockernet.EndpointSettings) {
				settings[n.docker.Name].IPAMConfig = &dockernet.EndpointIPAMConfig{IPv4Address: addr}
			})(req),
		)
	}
}

func (n *network) cutOff(ctx context.Context, s *server) error {
	_, err := n.engine.NetworkDisconnect(ctx, n.docker.ID, client.NetworkDisconnectOptions{Container: s.ctr.GetContainerID()})
	return err
}

func (n *network) rejoin(ctx context.Context, s *server) error {
	addr, err := netip.ParseAddrPort(s.addr)
	if err != nil {
		return err
	}
	_, err = n.engine.NetworkConnect(ctx, n.docker.ID, client.NetworkConnectOptions{
		Container:      s.ctr.GetContainerID(),
		EndpointConfig: &dockernet.EndpointSettings{IPAMConfig: &dockernet.EndpointIPAMConfig{IPv4Address: addr.Addr()}},
	})
	return err
}

// outside is the host and port at which this machine reaches a container whether
// it is cut off or not.
func (n *network) outside(ctx context.Context, s *server) (string, error) {
	state, err := n.engine.ContainerInspect(ctx, s.ctr.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	bridge := state.Container.NetworkSettings.Networks["bridge"]
	addr, err := netip.ParseAddrPort(s.addr)
	if err != nil {
		return "", err
	}
	if bridge == nil || !bridge.IPAddress.IsValid() {
		return "", fmt.Errorf("container %.12s is not on Docker's default network", s.ctr.GetContainerID())
	}
	return netip.AddrPortFrom(bridge.IPAddress, addr.Port()).String(), nil
}

func (n *network) remove(ctx context.Context) error {
	if n == nil {
		return nil
	}
	return n.docker.Remove(ctx)
}
