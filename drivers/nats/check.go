package nats

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What Check examines, besides what package cas does.
const (
	subjectServer      = "server"
	subjectBucket      = "bucket"
	subjectPermissions = "permissions"
	subjectReplicas    = "replicas"
	subjectSync        = "sync"
	subjectLimits      = "limits"
	subjectLogin       = "login"
	subjectGrade       = "grade"
)

// The two grades of a bucket.
const (
	savesWork    = "saves work"
	protectsData = "protects data"
)

// longestRecord is how long a record can be, about.
const longestRecord = 512 << 10

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	closed := l.store.link.closed
	e := &examination{store: l.store, Report: func(f driver.Finding) {
		if !closed() { // else it says nothing of the backend
			report(f)
		}
	}}
	if err := driverutil.CheckSteps(ctx, backend, closed, e.server, e.bucket, e.permissions, e.replicas, e.sync, e.limits, e.login,
		e.grade); err != nil {
		return err
	}
	if e.missing {
		return nil // nothing is stored so far
	}
	return l.Locker.Check(ctx, report)
}

// examination has the facts about a bucket.
type examination struct {
	driverutil.Report
	store   *store
	conn    *conn
	cluster string // the name that the server has, or empty
	info    streamInfo
	missing bool
	// reasons are why the bucket does not protect data.
	reasons []string
}

func (e *examination) server(ctx context.Context) bool {
	c, err := e.store.link.use(ctx)
	if err != nil {
		e.Wrong(subjectServer, "Start the servers, or correct what the message names.", "", "%s", driver.ErrorText(err))
		return false
	}
	e.conn, e.cluster = c, c.nc.ConnectedClusterName()
	version := c.nc.ConnectedServerVersion()
	report := e.Of("NATS " + version)
	switch {
	case !atLeast(version, oldestAlone):
		report.Wrong(subjectServer, "Use NATS 2.10 or later, in a cluster 2.11.", "", "it is NATS %s", driver.Quote(version))
	case e.cluster != "":
		report.OK(subjectServer, "it is NATS %s, in the cluster %s", version, driver.Quote(e.cluster))
	default:
		report.OK(subjectServer, "it is NATS %s", version)
	}
	return true
}

func (e *examination) bucket(ctx context.Context) bool {
	var err error
	e.info, err = e.store.streamInfo(ctx, e.conn, nil)
	name := e.store.bucket
	switch problem := e.info.Config.problem(name); {
	case hasCode(err, codeNoStream):
		e.missing = true
		e.Unchecked(subjectBucket, "", "there is no bucket %s so far: the first program makes it", name)
		return false
	case err != nil:
		e.Wrong(subjectBucket, "Correct what the message names.", "", "the bucket %s cannot be examined: %s", name, driver.ErrorText(err))
		return false
	case problem != "":
		e.Wrong(subjectBucket, "Name another bucket in the URL, which is made, or correct this one.", "nats stream edit KV_"+name,
			"the bucket %s is not one for locks: %s", name, problem)
		return false
	}
	e.OK(subjectBucket, "the bucket %s is one for locks", name)
	return true
}

// permissions tries each kind of request. The write demands a version that no key has.
func (e *examination) permissions(ctx context.Context) bool {
	const impossible = 1 << 62
	_, readErr := e.store.last(ctx, e.conn, cas.ProbeKey)
	_, writeErr := e.store.publish(ctx, e.conn, cas.ProbeKey, nil, impossible)
	if hasCode(writeErr, codeWrongSequence, codeWriteUnderWay) {
		writeErr = nil
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watchErr := e.store.watch(watching, cas.ProbeKey, func(cas.Value) { cancel() })
	if errors.Is(watchErr, context.Canceled) {
		watchErr = nil
	}
	const remedy = "Add the subject to the permissions of the user."
	switch {
	case ctx.Err() != nil:
		return false
	case readErr != nil:
		e.Wrong(subjectPermissions, remedy, "", "records cannot be read: %s", driver.ErrorText(readErr))
		return false
	case writeErr != nil:
		e.Wrong(subjectPermissions, remedy, "", "locks can be looked at, and not taken: %s", driver.ErrorText(writeErr))
	case watchErr != nil:
		e.Doubtful(subjectPermissions, remedy, "waiters are not woken, and poll: %s", driver.ErrorText(watchErr))
	default:
		e.OK(subjectPermissions, "the user may read, write and watch")
	}
	return true
}

// lacks notes a reason why the bucket does not protect data.
func (e *examination) lacks(format string, args ...any) {
	e.reasons = append(e.reasons, fmt.Sprintf(format, args...))
}

func (e *examination) replicas(context.Context) bool {
	n := e.info.Config.Replicas
	report := e.Of(fmt.Sprintf("servers with the bucket: %d", max(n, 1)))
	var behind []string
	if e.info.Cluster != nil {
		for _, r := range e.info.Cluster.Replicas {
			if r.Offline || !r.Current {
				behind = append(behind, r.Name)
			}
		}
	}
	edit := "nats stream edit KV_" + e.store.bucket + " --replicas 3"
	switch {
	case n < 2 && e.cluster != "":
		e.lacks("one server alone has the bucket")
		report.Doubtful(subjectReplicas, "Give the bucket three replicas: "+edit, "one server of the cluster alone has the bucket: locks stop "+
			"while it is down, and are forgotten with its disk")
	case n < 2:
		e.lacks("one server alone has the bucket")
		report.OK(subjectReplicas, "there is one server: locks stop while it is down, and are forgotten with its disk")
	case n%2 == 0:
		e.lacks("%d replicas bear the loss of no more than %d do", n, n-1)
		report.Doubtful(subjectReplicas, "Give the bucket three replicas: "+edit, "%d servers have the bucket: locks stop when %d of them are "+
			"down", n, n/2)
	case len(behind) > 0:
		e.lacks("not all servers have all writes")
		report.Doubtful(subjectReplicas, "Start these servers, or look into their logs.", "%d servers have the bucket, and these are down or "+
			"lag behind: %s", n, strings.Join(behind, ", "))
	default:
		report.OK(subjectReplicas, "%d servers have the bucket, and all writes", n)
	}
	return true
}

// alwaysSync is what a server's configuration needs.
const alwaysSync = "Set sync_interval: always in the block jetstream of each server, if two holders of one lock would damage something."

func (e *examination) sync(context.Context) bool {
	e.Unchecked(subjectSync, alwaysSync, "no client can see whether the servers sync each write to their disks: by default they do so every "+
		"2 minutes, and a crash of machines forgets what came after")
	return true
}

func (e *examination) limits(context.Context) bool {
	c, s := e.info.Config, e.info.State
	switch {
	case c.MaxMsgSize > 0 && c.MaxMsgSize < longestRecord:
		e.Doubtful(subjectLimits, "Raise max_msg_size to 512 KiB.", "a record with much data may be longer than the bucket takes (%d bytes)",
			c.MaxMsgSize)
	case c.MaxMsgs > 0 && s.Messages > uint64(c.MaxMsgs)/5*4:
		e.Doubtful(subjectLimits, "Raise max_msgs.", "the bucket has %d of %d keys: when it is full, new locks are refused", s.Messages,
			c.MaxMsgs)
	case c.MaxBytes > 0 && s.Bytes > uint64(c.MaxBytes)/5*4:
		e.Doubtful(subjectLimits, "Raise max_bytes.", "the bucket has %d of %d bytes: when it is full, no lock is granted or renewed", s.Bytes,
			c.MaxBytes)
	default:
		e.OK(subjectLimits, "the bucket has %d keys, and room for more", s.Messages)
	}
	return true
}

// login says who may take locks.
func (e *examination) login(context.Context) bool {
	conn := e.conn.nc
	o := conn.Opts
	_, err := conn.TLSConnectionState()
	secret := o.Password != "" || o.Token != "" || o.TokenHandler != nil || o.UserInfo != nil
	switch {
	case !conn.AuthRequired():
		e.OK(subjectLogin, "the server demands none: whoever reaches it may take every lock")
	case secret && err != nil && !isLocal(conn.ConnectedUrl()):
		e.Doubtful(subjectLogin, "Use TLS, by the URL parameter "+paramTLS+", or a file of credentials, whose secret does not leave this "+
			"program.", "the password or token goes to the server without TLS")
	default:
		e.OK(subjectLogin, "the server accepts it")
	}
	return true
}

// isLocal reports whether a URL leads to this machine.
func isLocal(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// grade says what the locks of this bucket are good for.
func (e *examination) grade(context.Context) bool {
	if len(e.reasons) == 0 {
		e.OK(subjectGrade, "%s, if all servers have sync_interval: always, which no client can see; otherwise it %s: two programs may hold one "+
			"lock after a crash of machines", protectsData, savesWork)
		return true
	}
	e.OK(subjectGrade, "%s: it avoids work that is done twice, but now and then two programs may hold one lock (%s)", savesWork,
		strings.Join(e.reasons, "; "))
	return true
}
