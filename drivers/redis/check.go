package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What Check examines, besides what package cas does.
const (
	subjectServer      = "server"
	subjectRole        = "role"
	subjectEviction    = "eviction"
	subjectPersistence = "persistence"
	subjectReplicas    = "replicas"
	subjectPrefix      = "prefix"
	subjectWaking      = "notifications"
	subjectGrade       = "grade"
)

// The two grades of a deployment.
const (
	savesWork    = "saves work"
	protectsData = "protects data"
)

// oldest is the oldest server that is supported: earlier ones do not run scripts of which one request may fail by itself.
const oldest = 7

// Check implements [driver.Checker]. Of a cluster it examines each primary.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	if err := l.Locker.Check(ctx, report); err != nil {
		return err
	}
	e := &examination{store: l.store}
	e.Report = func(f driver.Finding) {
		f.Detail = e.place + f.Detail
		report(f)
	}
	all, err := do(ctx, l.store, true, func(ctx context.Context) (all []*goredis.Client, err error) {
		all, _, err = l.store.servers.primaries(ctx)
		return all, err
	})
	if err != nil {
		e.unknown(err)
		e.prefixesUnchecked = err.Error()
	}
	for _, client := range all {
		if e.client = client; l.store.config.cluster {
			e.place = client.Options().Addr + ": "
		}
		if err := driverutil.CheckSteps(ctx, backend, nil, e.lookForPrefixes, e.readInfo, e.server, e.eviction, e.persistence,
			e.replicas); err != nil {
			return err
		}
	}
	e.place = ""
	return driverutil.CheckSteps(ctx, backend, nil, e.prefixes, e.waking, e.grade)
}

// examination has the facts about a server.
type examination struct {
	driverutil.Report
	store  *store
	client *goredis.Client
	place  string // what details begin with
	info   string
	// reasons are why the deployment does not protect data.
	reasons []string
	// otherPrefixes are those of other sets of locks; prefixesUnchecked is why there may be more.
	otherPrefixes     map[string]bool
	prefixesUnchecked string
}

// unknown says that the set-up cannot be read.
func (e *examination) unknown(err error) {
	e.Unchecked(subjectServer, "give the user of this check the rights +info and +config|get, or ask the operator of the server",
		"how the server is set up cannot be read: %v", err)
	e.lacks("how the server is set up is not known")
}

// lacks notes a reason why the deployment does not protect data.
func (e *examination) lacks(format string, args ...any) {
	e.reasons = append(e.reasons, e.place+fmt.Sprintf(format, args...))
}

func (e *examination) readInfo(ctx context.Context) bool {
	info, err := do(ctx, e.store, true, func(ctx context.Context) (string, error) {
		pipe := e.client.Pipeline()
		var all []*goredis.StringCmd
		for _, section := range []string{"server", "replication", "persistence", "memory"} { // several at once are known since 7.0
			all = append(all, pipe.Info(ctx, section))
		}
		_, err := pipe.Exec(ctx)
		var texts []string
		for _, one := range all {
			texts = append(texts, one.Val())
		}
		return strings.Join(texts, "\n"), err
	})
	if err != nil {
		e.unknown(err)
		return false
	}
	e.info = info
	return true
}

// field returns a field of the answer to INFO, or "".
func (e *examination) field(name string) string { return fieldOf(e.info, name) }

func (e *examination) number(name string) int {
	n, _ := strconv.Atoi(e.field(name))
	return n
}

func (e *examination) server(context.Context) bool {
	name, version := "Redis", e.field("redis_version")
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if valkey := e.field("valkey_version"); valkey != "" {
		name, version = "Valkey", valkey
	}
	found := name + " " + version
	if e.store.config.cluster {
		found += ", a cluster"
	}
	if report := e.Of(found); err != nil || n < oldest {
		report.Wrong(subjectServer, "use Redis 7.0 or later, or Valkey", "", "it is %s %s", name, driver.Quote(version))
	} else {
		report.OK(subjectServer, "it is %s %s", name, version)
	}
	if role := e.field("role"); role != "master" {
		e.Wrong(subjectRole, "use the address of the primary, or the parameter master with the hosts of Sentinel", "",
			"the server is a replica, which takes no writes")
		e.lacks("the server is a replica")
	}
	return true
}

// eviction looks for a policy that removes locks: those have no expiry.
func (e *examination) eviction(context.Context) bool {
	policy, limit := e.field("maxmemory_policy"), e.number("maxmemory")
	switch {
	case policy == "":
		e.Unchecked(subjectEviction, "", "the server does not say what it removes when its memory is full")
		e.lacks("the eviction policy is not known")
	case e.store.old != nil && strings.HasPrefix(policy, "volatile-"): // old keys have an expiry
		const remedy = "set maxmemory-policy to noeviction as long as there are old keys"
		e.lacks("the policy %s removes old keys", policy)
		if limit > 0 {
			e.Wrong(subjectEviction, remedy, "CONFIG SET maxmemory-policy noeviction", "when its memory is full, the server removes old keys "+
				"of locks that are held: then old programs take them, too (maxmemory-policy %s)", policy)
		} else {
			e.Doubtful(subjectEviction, remedy, "with a maxmemory, the server would remove old keys of locks that are held: then old "+
				"programs would take them, too (maxmemory-policy %s)", policy)
		}
	case strings.HasPrefix(policy, "allkeys-"):
		remedy := "set maxmemory-policy to noeviction, or to one that begins with volatile-"
		if e.store.old != nil {
			remedy = "set maxmemory-policy to noeviction"
		}
		e.lacks("the policy %s removes locks", policy)
		if limit > 0 {
			e.Wrong(subjectEviction, remedy, "CONFIG SET maxmemory-policy noeviction",
				"when its memory is full, the server removes any key, also of locks that are held (maxmemory-policy %s)", policy)
		} else {
			e.Doubtful(subjectEviction, remedy, "with a maxmemory, the server would remove any key, also of locks that are held "+
				"(maxmemory-policy %s)", policy)
		}
	default:
		e.OK(subjectEviction, "the server removes no locks when its memory is full (maxmemory-policy %s)", policy)
	}
	return true
}

// setting reads a setting of the server. known is false without the right to, as with most hosted servers.
func (e *examination) setting(ctx context.Context, name string) (value string, known bool) {
	all, err := do(ctx, e.store, true, func(ctx context.Context) (map[string]string, error) {
		return e.client.ConfigGet(ctx, name).Result()
	})
	value, known = all[name]
	return value, known && err == nil
}

func (e *examination) persistence(ctx context.Context) bool {
	fsync, known := e.setting(ctx, "appendfsync")
	save, _ := e.setting(ctx, "save")
	pauses, _ := e.setting(ctx, "no-appendfsync-on-rewrite")
	const remedy = "set appendonly to yes and appendfsync to always, if two holders of one lock would damage something"
	switch {
	case e.field("aof_enabled") == "1" && e.field("aof_last_write_status") == "err":
		e.lacks("the append-only file cannot be written")
		e.Wrong(subjectPersistence, "look into the log of the server: its disk may be full", "", "the append-only file cannot be written")
	case e.field("aof_enabled") == "1" && fsync == "always" && pauses == "yes":
		e.lacks("while the append-only file is rewritten, writes are not on disk")
		e.Doubtful(subjectPersistence, "set no-appendfsync-on-rewrite to no", "while the append-only file is rewritten, a crash of the "+
			"machine forgets locks (no-appendfsync-on-rewrite yes)")
	case e.field("aof_enabled") == "1" && fsync == "always":
		e.OK(subjectPersistence, "each write is on disk before its answer (appendfsync always)")
	case e.field("aof_enabled") == "1" && !known:
		e.lacks("it is not known when writes are on disk")
		e.Unchecked(subjectPersistence, remedy, "the server writes an append-only file; how soon cannot be read")
	case e.field("aof_enabled") == "1":
		e.lacks("a crash of the machine may forget writes")
		e.Doubtful(subjectPersistence, remedy, "a crash of the machine forgets the locks of the last second or more (appendfsync %s)", fsync)
	case save != "":
		e.lacks("a restart forgets the latest writes")
		e.Doubtful(subjectPersistence, remedy, "a restart forgets all locks since the last snapshot (appendonly no)")
	default:
		e.lacks("a restart forgets the locks")
		e.Doubtful(subjectPersistence, remedy, "a restart forgets all locks, or those since the last snapshot (appendonly no)")
	}
	return true
}

func (e *examination) replicas(ctx context.Context) bool {
	n, expected := replicasIn(e.info), e.store.config.replicas
	if expected < 0 { // Sentinel or the cluster may know of more than are connected
		expected = max(n, e.store.expected(e.client))
	}
	report := e.Of(fmt.Sprintf("connected replicas: %d", n))
	needed := majority(max(n, expected))
	switch {
	case n == 0 && expected <= 0:
		report.OK(subjectReplicas, "there are none: no fail-over can forget a grant, and locks stop while the server is down")
		return true
	case expected == 0:
		e.lacks("nothing waits for the replicas")
		report.Doubtful(subjectReplicas, "leave out the URL parameter replicas", "there are %d, and grants do not wait for them: "+
			"a fail-over forgets the latest", n)
		return true
	case n < needed:
		e.lacks("too few replicas are connected")
		report.Wrong(subjectReplicas, "start the replicas", "", "%d of %d are connected, and a grant needs %d of them: nobody is granted a lock",
			n, expected, needed)
		return true
	}
	least, known := e.setting(ctx, "min-replicas-to-write")
	if m, err := strconv.Atoi(least); known && err == nil && m < needed {
		e.lacks("a primary without its replicas goes on (min-replicas-to-write %d)", m)
		report.Doubtful(subjectReplicas, fmt.Sprintf("set min-replicas-to-write to %d on all servers: a primary that was cut off then refuses "+
			"writes", needed), "%d are connected, and a grant waits for %d of them, but a primary that was cut off goes on writing "+
			"(min-replicas-to-write %d)", n, needed, m)
	} else {
		if !known {
			e.lacks("min-replicas-to-write is not known")
		}
		report.OK(subjectReplicas, "%d are connected, and a grant waits for %d of them", n, needed)
	}
	if e.store.old != nil {
		e.lacks("old programs do not wait for replicas")
	}
	if needed < n {
		e.lacks("a replica may be promoted that lacks a grant which %d of %d have", needed, n)
	}
	return true
}

// waking publishes something, and waits for it.
func (e *examination) waking(ctx context.Context) bool {
	if e.store.old != nil {
		return true // waiters poll
	}
	name, text := e.store.channel("~probe"), rand.Text()
	err := func() error {
		limited, cancel := context.WithTimeout(ctx, e.store.config.timeout)
		defer cancel()
		_, err := do(limited, e.store, true, func(ctx context.Context) (int64, error) {
			client := e.store.servers.some()
			sub := client.Subscribe(ctx, name)
			defer func() { _ = sub.Close() }()
			for {
				message, err := sub.ReceiveTimeout(ctx, e.store.config.timeout)
				if err != nil {
					return 0, err
				}
				switch m := message.(type) {
				case *goredis.Subscription:
					err = client.Publish(ctx, name, text).Err()
				case *goredis.Message:
					if m.Payload == text {
						return 0, nil
					}
				}
				if err != nil {
					return 0, err
				}
			}
		})
		return err
	}()
	if err != nil {
		e.Doubtful(subjectWaking, "give the user of the programs the rights +subscribe, +unsubscribe and +publish, and the channels &"+
			e.store.config.prefix+"*", "waiters are not woken, and poll: %v", err)
	} else {
		e.OK(subjectWaking, "a message was published and received")
	}
	return true
}

// grade says what the locks of this deployment are good for.
func (e *examination) grade(context.Context) bool {
	if len(e.reasons) == 0 {
		e.OK(subjectGrade, "%s: what was found forgets no grant, as long as only a server that has all writes is promoted", protectsData)
		return true
	}
	e.OK(subjectGrade, "%s: it avoids work that is done twice, but now and then two programs may hold one lock (%s)", savesWork,
		strings.Join(e.reasons, "; "))
	return true
}
