package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// atLeast reports whether a version, such as "2.11.3", is 2.MINOR or later.
func atLeast(version string, minor int) bool {
	major, rest, _ := strings.Cut(version, ".")
	rest, _, _ = strings.Cut(rest, ".")
	first, err1 := strconv.Atoi(major)
	second, err2 := strconv.Atoi(rest)
	return err1 == nil && err2 == nil && (first > 2 || first == 2 && second >= minor)
}

// The oldest versions, of a server alone and of those of a cluster: before 2.11 a copy that lags may store a write whose condition its
// leader has found false.
const (
	oldestAlone     = 10
	oldestInCluster = 11
)

var errOldCluster = driver.Denied(errors.New("it is a cluster, and older than NATS 2.11: when its leader changes, writes that were " +
	"refused may come into effect. Use NATS 2.11 or later on all servers"))

// compareHosts asks each of several hosts for the bucket: two clusters in one URL would have locks of their own each. A host that does not
// answer is left out.
func (s *store) compareHosts(ctx context.Context) error {
	servers := s.link.servers()
	if len(servers) < 2 {
		return nil
	}
	c, err := s.link.use(ctx)
	if err == nil {
		_, err = s.streamInfo(ctx, c, nil)
	}
	if err != nil {
		return nil //nolint:nilerr // there is nothing to compare with; the caller finds out why
	}
	errs := make([]error, len(servers))
	var work sync.WaitGroup
	for i, server := range servers {
		work.Go(func() { errs[i] = s.compareHost(ctx, server) })
	}
	work.Wait()
	return cmp.Or(errs...)
}

func (s *store) compareHost(ctx context.Context, server string) error {
	o := s.link.options
	o.Servers, o.Url = []string{server}, ""
	c, err := dial(ctx, o, s.timeout, s.link.attempts)
	if err != nil {
		return nil // it is down
	}
	defer c.close()
	switch {
	case c.nc.ConnectedClusterName() == "":
		return errNoCluster
	case !atLeast(c.nc.ConnectedServerVersion(), oldestInCluster):
		return errOldCluster
	}
	switch _, err = s.streamInfo(ctx, c, nil); {
	case hasCode(err, codeNoStream):
		return driver.Denied(fmt.Errorf("the server %s has no bucket %s, and another one that is named has it: name the servers of one "+
			"cluster alone", c.nc.ConnectedAddr(), s.bucket))
	case driver.Lasting(err):
		return err
	}
	return nil
}
