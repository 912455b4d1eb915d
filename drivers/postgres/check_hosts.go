package postgres

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	subjectHosts       = "hosts"
	subjectReplication = "logical replication"
)

// host is a host of the URL, with what its servers say: a name can have several addresses.
type host struct {
	name    string
	ways    []*pgconn.FallbackConfig // with TLS and without
	servers []identity
	err     error // why none answers
}

// hostsOf returns the hosts of a configuration in their order.
func hostsOf(dial *pgx.ConnConfig) (all []*host) {
	for _, way := range append([]*pgconn.FallbackConfig{{Host: dial.Host, Port: dial.Port, TLSConfig: dial.TLSConfig}}, dial.Fallbacks...) {
		_, name := pgconn.NetworkAddress(way.Host, way.Port) // or the path of a socket
		at := slices.IndexFunc(all, func(h *host) bool { return h.name == name })
		if at < 0 {
			at, all = len(all), append(all, &host{name: name})
		}
		all[at].ways = append(all[at].ways, way)
	}
	return all
}

// ask asks the servers of a host.
func (h *host) ask(ctx context.Context, dial *pgx.ConnConfig) {
	addresses := []string{h.ways[0].Host}
	if network, _ := pgconn.NetworkAddress(addresses[0], 0); network != "unix" {
		if addresses, h.err = dial.LookupFunc(ctx, addresses[0]); h.err != nil {
			return
		}
	}
	for _, address := range addresses {
		one := dial.Copy()
		one.Fallbacks, one.ValidateConnect, one.ConnectTimeout = nil, nil, max(one.ConnectTimeout, hostTimeout)
		for n, way := range h.ways {
			at, port := address, way.Port
			if host, own, err := net.SplitHostPort(address); err == nil {
				number, _ := strconv.ParseUint(own, 10, 16)
				at, port = host, uint16(number)
			}
			if n == 0 {
				one.Host, one.Port, one.TLSConfig = at, port, way.TLSConfig
			} else {
				one.Fallbacks = append(one.Fallbacks, &pgconn.FallbackConfig{Host: at, Port: port, TLSConfig: way.TLSConfig})
			}
		}
		id, err := askServer(ctx, &one.Config)
		if err != nil {
			h.err = err
			continue
		}
		h.servers = append(h.servers, id)
	}
	if len(h.servers) > 0 {
		h.err = nil
	}
}

func askServer(ctx context.Context, config *pgconn.Config) (identity, error) {
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return identity{}, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return identify(ctx, conn)
}

// askHosts asks all hosts of the URL at a time.
func (c *checkup) askHosts(ctx context.Context) ([]*host, error) {
	own := c.l.pool.Config()
	dial := own.ConnConfig
	if err := own.BeforeConnect(ctx, dial); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.l.config.timeout)
	defer cancel()
	hosts := hostsOf(dial)
	var asked sync.WaitGroup
	for _, h := range hosts {
		asked.Go(func() { h.ask(ctx, dial) })
	}
	asked.Wait()
	return hosts, nil
}

// hosts examines whether all hosts are servers of one cluster, of which one takes writes. A program uses the first that says that it
// is a primary.
func (c *checkup) hosts(ctx context.Context) bool {
	hosts, err := c.askHosts(ctx)
	if err != nil {
		c.Unchecked(subjectHosts, "Check the program's hook for connections.", "the hosts were not asked: %s", textOf(err))
		return true
	}
	systems, primaries := map[string]bool{}, map[string]bool{}
	var all, silent []string
	for _, h := range hosts {
		if h.err != nil {
			c.Doubtful(subjectHosts, "Start the server, or take the host out of the URL.", "%s does not answer: %s", h.name, textOf(h.err))
		}
		for _, id := range h.servers {
			switch {
			case id.system == "":
				silent = append(silent, h.name)
				continue
			case id.standby:
				all = append(all, fmt.Sprintf("%s (a standby of the cluster %s)", h.name, id.system))
			default:
				all = append(all, fmt.Sprintf("%s (the primary of the cluster %s, timeline %d)", h.name, id.system, id.timeline))
				primaries[id.system+id.started] = true // several names and addresses can lead to one server
			}
			systems[id.system] = true
		}
	}
	slices.Sort(all)
	text := strings.Join(slices.Compact(all), ", ")
	switch {
	case len(systems) > 1:
		c.Wrong(subjectHosts, "Name servers of one cluster in the URL.", "",
			"a program takes its locks from whichever says that it is a primary, "+
				"and these do not belong together: %s", text)
	case len(primaries) > 1:
		c.Wrong(subjectHosts, "Stop the one with the lower timeline at once, and make it a standby (pg_rewind). Let the fail-over stop an old "+
			"primary before it promotes a standby.", "", "several servers take writes, and each grants the same locks: %s", text)
	case len(silent) > 0:
		c.Unchecked(subjectHosts, "Run this as a superuser, with the user of the locks, in the database of the locks: GRANT EXECUTE ON FUNCTION "+
			"pg_control_system() TO USER.", "%s does not say to which cluster it belongs, so another one is not noticed",
			strings.Join(slices.Compact(silent), ", "))
	case len(hosts) > 1:
		c.OK(subjectHosts, "%s", text)
	}
	return true
}

// subscriptionsSQL reads the subscriptions that write into a table.
const subscriptionsSQL = `SELECT coalesce(string_agg(DISTINCT coalesce(to_json(s.subname)::text, r.srsubid::text), ', '), '')
	FROM pg_subscription_rel AS r LEFT JOIN pg_stat_subscription AS s ON s.subid = r.srsubid WHERE r.srrelid = $1::oid`

// subscriptions examines whether another server writes into the table.
func (c *checkup) subscriptions(ctx context.Context) {
	var names string
	if c.read(ctx, subjectReplication, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, subscriptionsSQL, c.found.oid).Scan(&names)
	}) && names != "" {
		c.Wrong(subjectReplication, "Leave the table out of the publication, and let all programs take their locks from one server.", "",
			"the subscription %s writes into %s: where both servers grant locks, neither waits for the other, and both grant one lock",
			names, c.table)
	}
}
