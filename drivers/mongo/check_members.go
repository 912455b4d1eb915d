package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
)

// What [Locker.Check] examines of the members of a replica set, or of the routers of a sharded
// cluster.
const (
	subjectMembers  = "members"
	subjectClocks   = "clocks of the members"
	subjectJournal  = "journal of the majority"
	subjectElection = "election timeout"
)

// The limits for clocks. A lease's grace is a sixth of its TTL: 5 s by default.
const (
	doubtfulSkew = time.Second
	wrongSkew    = 5 * time.Second
)

const (
	memberTimeout = 3 * time.Second
	clockReadings = 3
)

// member is one server of the set, or a router, as it answers by itself.
type member struct {
	host    string
	arbiter bool
	err     error
	offset  time.Duration // of its clock, against this machine's
	within  time.Duration // how exact the offset is
}

// members asks each member by itself whether it runs and what time it is.
func (c *checkup) members(ctx context.Context) bool {
	if c.standalone {
		return true // the finding about the server says all
	}
	all := c.memberHosts()
	if c.l.dial == nil {
		const why = "the program's own client does not say how to connect to one member"
		c.Unchecked(subjectMembers, "", why)
		c.Unchecked(subjectClocks, "", why)
		return true
	}
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { all[i].ask(ctx, c.l.dial) })
	}
	asked.Wait()
	c.reportMembers(all)
	c.reportClocks(all)
	return true
}

// memberHosts are the members that the primary names, or the routers that the URL names.
func (c *checkup) memberHosts() (all []member) {
	if c.router {
		if c.l.dial != nil {
			for _, host := range c.l.dial.Hosts {
				all = append(all, member{host: host})
			}
		}
		return all
	}
	for _, list := range []string{"hosts", "passives", "arbiters"} {
		array, _ := c.hello.Lookup(list).ArrayOK()
		values, err := array.Values()
		if err != nil {
			continue
		}
		for _, value := range values {
			if host, ok := value.StringValueOK(); ok {
				all = append(all, member{host: host, arbiter: list == "arbiters"})
			}
		}
	}
	return all
}

// ask reads the member's clock several times and keeps the most exact reading. No user is needed
// for that.
func (m *member) ask(ctx context.Context, dial *options.ClientOptions) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	o := options.Client().SetHosts([]string{m.host}).SetDirect(true).SetServerSelectionTimeout(memberTimeout).SetAppName("holdfast")
	o.TLSConfig, o.Dialer = dial.TLSConfig, dial.Dialer
	client, err := mongo.Connect(o)
	if err != nil {
		m.err = err
		return
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	for range clockReadings {
		begun := time.Now()
		hello, err := client.Database("admin").RunCommand(ctx, docOf("hello", 1)).Raw()
		if err != nil {
			m.err = addAdvice(err, m.host)
			return
		}
		half := time.Since(begun) / 2
		local, ok := hello.Lookup("localTime").TimeOK()
		if !ok {
			m.err = fmt.Errorf("its answer has no time")
			return
		}
		if m.within == 0 || half < m.within {
			m.within, m.offset = half+time.Millisecond, local.Sub(begun.Add(half))
		}
	}
}

// reportMembers says whether the set survives the loss of a member.
func (c *checkup) reportMembers(all []member) {
	if c.router {
		c.OK(subjectMembers, "%d routers in the URL", len(all))
		return
	}
	var down, arbiters []string
	data := 0
	for _, m := range all {
		switch {
		case m.err != nil:
			down = append(down, m.host)
		case m.arbiter:
			arbiters = append(arbiters, m.host)
		default:
			data++
		}
	}
	report := c.Of(fmt.Sprintf("a replica set, members: %d", len(all)))
	found := driver.Finding{Subject: subjectMembers, Level: driver.LevelDoubtful}
	switch {
	case len(down) > 0:
		found.Detail = fmt.Sprintf("%d of %d members do not answer here (%s): the next failure can stop every lock", len(down), len(all),
			strings.Join(down, ", "))
		found.Remedy = "Start them, or let this machine reach them: it needs them as soon as one of them becomes the primary."
		if c.stopped {
			found.Level = driver.LevelWrong
			found.Detail = fmt.Sprintf("%d of %d members do not answer here (%s), and no majority acknowledges a write: no lock can be acquired or "+
				"renewed", len(down), len(all), strings.Join(down, ", "))
			found.Remedy = "Start them."
		}
	case len(arbiters) > 0:
		found.Detail = fmt.Sprintf("%s is an arbiter: if one of the %d members with data fails, no majority has a write, and no lock can be "+
			"acquired or renewed", strings.Join(arbiters, ", "), data)
		found.Remedy = "Replace the arbiter by a member with data: in mongosh rs.remove(ARBITER), then rs.add(HOST)."
	case data < 3:
		found.Detail = fmt.Sprintf("the set has %d members with data: without one of them no lock can be acquired or renewed", data)
		if data == 1 {
			found.Detail = "the set has one member: if it fails, no lock can be acquired or renewed"
		}
		found.Remedy = "Add members until there are three: in mongosh rs.add(HOST)."
	default:
		report.OK(subjectMembers, "%d with data, and all answer", data)
		return
	}
	report(found)
}

// reportClocks compares the clocks of those that may judge expiry.
func (c *checkup) reportClocks(all []member) {
	read := slices.DeleteFunc(slices.Clone(all), func(m member) bool { return m.err != nil || m.arbiter })
	if len(read) < 2 {
		c.Unchecked(subjectClocks, "", "there are no two clocks to compare")
		return
	}
	slices.SortFunc(read, func(a, b member) int { return int(min(max(a.offset-b.offset, -1), 1)) })
	first, last, middle := read[0], read[len(read)-1], read[len(read)/2]
	outlier, behind := last, "ahead of"
	if middle.offset-first.offset > last.offset-middle.offset {
		outlier, behind = first, "behind"
	}
	skew := last.offset - first.offset
	certain := skew - first.within - last.within
	if certain < doubtfulSkew {
		c.OK(subjectClocks, "they agree within %v", max(skew, first.within+last.within).Round(time.Millisecond))
		return
	}
	found := driver.Finding{Subject: subjectClocks, Level: driver.LevelDoubtful,
		Detail: fmt.Sprintf("the clock of %s is %v %s the others: a lease can end that much too early or too late when the primary changes",
			outlier.host, skew.Round(10*time.Millisecond), behind),
		Remedy: "Synchronize the clock of " + outlier.host + " (chrony, systemd-timesyncd), or use a grace that is longer than the difference."}
	if certain >= wrongSkew {
		found.Level = driver.LevelWrong
		found.Detail += ", which is more than the default grace"
	}
	c.Report(found)
}

// configuration examines the settings of the replica set that locks depend on.
func (c *checkup) configuration(ctx context.Context) bool {
	if c.standalone || c.router {
		return true
	}
	var reply bson.Raw
	err := c.run(ctx, func(ctx context.Context) (err error) {
		reply, err = c.l.adminCommand(ctx, "replSetGetConfig")
		return err
	})
	if err != nil {
		const remedy = "To have it checked, grant the user the role clusterMonitor on the database admin; locks do not need it."
		for _, subject := range []string{subjectJournal, subjectElection} {
			c.failed(subject, driver.LevelUnchecked, err, remedy)
		}
		return true
	}
	if journal, ok := reply.Lookup("config", "writeConcernMajorityJournalDefault").BooleanOK(); ok && !journal {
		c.Doubtful(subjectJournal, "In mongosh: c = rs.conf(); c.writeConcernMajorityJournalDefault = true; rs.reconfig(c)",
			"the set acknowledges a majority write before it is in the journals (writeConcernMajorityJournalDefault: false): if all "+
				"members lose power, a lock that was granted can be lost")
	} else {
		c.OK(subjectJournal, "a majority write is in the journals before it is acknowledged")
	}
	const longest = 13 * time.Second // a fail-over, some 2 s more, must fit into half of the TTL
	ms, _ := reply.Lookup("config", "settings", "electionTimeoutMillis").AsInt64OK()
	timeout := time.Duration(ms) * time.Millisecond
	if timeout > longest {
		c.Doubtful(subjectElection, "Use leases with a TTL of at least three times that, or in mongosh: c = rs.conf(); "+
			"c.settings.electionTimeoutMillis = 10000; rs.reconfig(c)", "after a crash of the primary the set waits %s before it elects "+
			"another: leases with the default TTL of 30s are lost by then", driver.FormatDuration(timeout))
	} else {
		c.OK(subjectElection, "%s: leases with a TTL of 30s survive the crash of a primary", driver.FormatDuration(timeout))
	}
	return true
}
