package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What Check examines, besides what package cas does.
const (
	subjectMembers    = "members"
	subjectCluster    = "cluster"
	subjectVersion    = "version"
	subjectAlarms     = "alarms"
	subjectDatabase   = "database"
	subjectCompaction = "compaction"
	subjectLogin      = "login"
)

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	e := &examination{Report: report, store: l.store}
	if err := driverutil.CheckSteps(ctx, backend, nil, e.members, e.version, e.cluster, e.alarms, e.database, e.compaction,
		e.login); err != nil {
		return err
	}
	return l.Locker.Check(ctx, report)
}

// examination has the facts about a cluster.
type examination struct {
	driverutil.Report
	store    *store
	statuses []status // of the members that answer
	list     memberList
	listErr  error // why it could not be read
}

// members asks every address of the URL.
func (e *examination) members(ctx context.Context) bool {
	all, _ := e.store.members.order()
	var silent []string
	for _, m := range all {
		s := status{at: m.name}
		err := e.store.askMember(ctx, m, e.store.timeout, call{method: methodStatus, body: nothing{}}, &s)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errOtherCluster):
			e.Wrong(subjectMembers, "Correct the addresses in the URL: each cluster has locks of its own.", "", "%s", text(err))
			return false
		case err != nil:
			silent = append(silent, text(err))
		default:
			e.statuses = append(e.statuses, s)
		}
	}
	switch {
	case len(e.statuses) == 0:
		e.Wrong(subjectMembers, "Correct what the message names.", "", "none of them answers: %s", strings.Join(silent, "; "))
		return false
	case len(silent) > 0:
		e.Doubtful(subjectMembers, "Start these members, or correct their addresses.", "%d of %d addresses do not answer: %s", len(silent),
			len(all), strings.Join(silent, "; "))
	default:
		e.OK(subjectMembers, "addresses that answer: %d of %[1]d", len(all))
	}
	e.listErr = e.store.ask(ctx, call{method: methodMemberList, body: nothing{}}, &e.list)
	return ctx.Err() == nil
}

// text is that of an error of a member.
func text(err error) string {
	var next *elsewhereError
	if errors.As(err, &next) {
		err = next.error
	}
	return driver.ErrorText(err)
}

// cluster compares the addresses with the members that the cluster has.
func (e *examination) cluster(context.Context) bool {
	if e.listErr != nil {
		e.Unchecked(subjectCluster, "", "its members cannot be listed: %s", text(e.listErr))
		return true
	}
	var voters, missing []string
	for _, m := range e.list.Members {
		name := m.Name
		if name == "" {
			name = strconv.FormatUint(m.ID, 16)
		}
		if m.IsLearner {
			continue
		}
		voters = append(voters, name)
		if !slices.ContainsFunc(e.statuses, func(s status) bool { return s.Header.MemberID == m.ID }) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	leaders := map[uint64]bool{}
	for _, s := range e.statuses {
		leaders[s.Leader] = true
		if s.IsLearner {
			e.Doubtful(subjectCluster, "Leave its address out of the URL until it is promoted.", "%s is a learner, which serves no locks", s.at)
			return true
		}
	}
	id := fmt.Sprintf("cluster %x has %d voting members", e.statuses[0].Header.ClusterID, len(voters))
	if len(voters) == 1 {
		id = strings.TrimSuffix(id, "s")
	}
	report := e.Of(fmt.Sprintf("voting members: %d", len(voters)))
	switch {
	case leaders[0] || len(leaders) > 1:
		report.Wrong(subjectCluster, "Look into the logs of the members: can they reach each other?", "",
			"%s, and the members that answer do not agree on a leader", id)
		return false
	case len(missing) > 0 && len(voters) > 1:
		report.Doubtful(subjectCluster, "Name the address of each member in the URL: another one is asked when one fails.",
			"%s, and this program reaches %d: not %s", id, len(voters)-len(missing), strings.Join(missing, ", "))
	case len(voters) == 2:
		report.Doubtful(subjectCluster, "Add a third member, or remove one.", "%s: with two, locks stop when either of them is down", id)
	case len(voters) == 1:
		report.OK(subjectCluster, "%s: locks stop while it is down", id)
	default:
		report.OK(subjectCluster, "%s, and a leader", id)
	}
	return true
}

// mayDiffer reports whether a version is one of those whose members may come to differ after a crash. 3.5.1 had two holders in a test.
func mayDiffer(version string) bool {
	version, _, _ = strings.Cut(version, "-") // as of 3.5.0-rc.1
	minor, patch, _ := strings.Cut(strings.TrimPrefix(version, "3."), ".")
	number, err := strconv.Atoi(patch)
	return err == nil && (minor == "5" && number <= 5 || minor == "4" && number < 22)
}

// version looks for versions that are known to lose data.
func (e *examination) version(context.Context) bool {
	var all, bad []string
	for _, s := range e.statuses {
		if !slices.Contains(all, s.Version) {
			all = append(all, s.Version)
		}
		if mayDiffer(s.Version) && !slices.Contains(bad, s.Version) {
			bad = append(bad, s.Version)
		}
	}
	found, remedy := "etcd "+strings.Join(all, ", "), "Upgrade to the latest patch: 3.4.22, 3.5.6 or later."
	switch report := e.Of(found); {
	case len(bad) == 0:
		report.OK(subjectVersion, "it is %s", found)
	case len(e.list.Members) == 1: // several addresses may lead to it
		report.Doubtful(subjectVersion, remedy, "of several members of etcd %s one may come to differ after a crash", strings.Join(bad, ", "))
	default:
		report.Wrong(subjectVersion, remedy, "", "members of etcd %s may come to differ after a crash; then two clients hold one lock",
			strings.Join(bad, ", "))
	}
	return true
}

// alarms looks for those that keep writes from being done.
func (e *examination) alarms(ctx context.Context) bool {
	var found alarmList
	err := e.store.ask(ctx, call{method: methodAlarm, body: nothing{}, bare: true}, &found) // so is 3.4's
	switch {
	case err != nil:
		e.Unchecked(subjectAlarms, "", "they cannot be read: %s", text(err))
	case len(found.Alarms) > 0:
		e.Wrong(subjectAlarms, "With NOSPACE: compact and defragment the members, and disarm the alarm. With CORRUPT: replace the member "+
			"that differs.", "etcdctl alarm list", "the alarm %s is active: nobody is granted a lock, and holders lose theirs",
			found.Alarms[0])
		return false
	default:
		e.OK(subjectAlarms, "none is active")
	}
	return ctx.Err() == nil
}

const mebibyte = 1 << 20

// database compares the size of the database with its quota, beyond which writes are refused.
func (e *examination) database(context.Context) bool {
	for _, s := range e.statuses {
		if s.DBSizeQuota > 0 && s.DBSize > s.DBSizeQuota/5*4 {
			e.Doubtful(subjectDatabase, "Defragment the members, or raise --quota-backend-bytes.", "that of %s has %d of %d MiB (%d in use): "+
				"at the quota no lock is granted or renewed", s.at, s.DBSize/mebibyte, s.DBSizeQuota/mebibyte, s.DBSizeInUse/mebibyte)
			return true
		}
	}
	e.OK(subjectDatabase, "it has %d MiB, of which %d are in use", e.statuses[0].DBSize/mebibyte, e.statuses[0].DBSizeInUse/mebibyte)
	return true
}

// A cluster keeps every write until it is compacted. These are the revisions that should not all be there any more.
const (
	keptRevisions = 1_000_000
	fewRevisions  = 20_000
)

// compaction tries to read an old revision.
func (e *examination) compaction(ctx context.Context) bool {
	now := e.statuses[0].Header.Revision
	old := rangeRequest{Key: []byte(e.store.key(cas.ProbeKey)), CountOnly: true, Revision: max(1, now-keptRevisions)}
	err := e.store.ask(ctx, call{method: methodRange, body: old}, &rangeAnswer{})
	switch {
	case err != nil && strings.Contains(err.Error(), "has been compacted"):
		e.OK(subjectCompaction, "old revisions are removed")
	case err != nil:
		e.Unchecked(subjectCompaction, "", "an old revision cannot be read: %s", text(err))
	case now > fewRevisions:
		e.Doubtful(subjectCompaction, "Start the members with --auto-compaction-mode=periodic --auto-compaction-retention=1h.",
			"the latest %d revisions are all kept: each renewal adds one, until the database has reached its quota", now-old.Revision)
	default:
		e.OK(subjectCompaction, "there are %d revisions; set --auto-compaction-retention, or they all stay", now)
	}
	return ctx.Err() == nil
}

// login says who may take locks.
func (e *examination) login(ctx context.Context) bool {
	if e.store.login == nil {
		e.OK(subjectLogin, "the URL has none: whoever reaches the members may take every lock")
		return true
	}
	for _, m := range e.store.members.all {
		u, err := url.Parse(m.url)
		if err != nil || u.Scheme == "https" {
			continue
		}
		if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
			e.Doubtful(subjectLogin, "Use TLS, with the scheme etcds.", "the password goes to %s without TLS", m.name)
			return true
		}
	}
	var a authStatus
	switch err := e.store.ask(ctx, call{method: methodAuthStatus, body: nothing{}}, &a); {
	case err != nil && !strings.Contains(err.Error(), "permission denied"): // 3.4 does not have it
		e.Unchecked(subjectLogin, "", "the cluster does not show whether it has authentication")
	case err == nil && !a.Enabled:
		e.Doubtful(subjectLogin, "Enable the authentication, or leave the user out of the URL.", "the cluster has no authentication: whoever "+
			"reaches the members may take every lock")
	default:
		e.OK(subjectLogin, "the cluster accepts it")
	}
	return ctx.Err() == nil
}
