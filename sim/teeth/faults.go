package main

// fault is a change of the library's code that breaks a promise.
type fault struct {
	Name    string
	Promise string // its number in doc.go; – if it is none of them
	File    string
	Old     string // occurs once in the file
	New     string
}

const (
	acquisition = "internal/engine/acquisition.go"
	attempt     = "internal/engine/attempt.go"
	cleanup     = "internal/engine/cleanup.go"
	hold        = "internal/engine/hold.go"
	queue       = "internal/engine/queue.go"
	release     = "internal/engine/release.go"
	renewer     = "internal/renewal/renewer.go"
	lockstate   = "driver/lockstate/lockstate.go"
	seen        = "internal/sightings/sightings.go"
	timings     = "internal/timing/timing.go"
)

var faults = []fault{
	{
		"an unexpired lease is granted to another that has seen it", "1", lockstate,
		"	case !req.Replace.IsZero() && req.Replace == k.revision():", "	case !req.Replace.IsZero():",
	},
	{
		"a renewal leaves the revision as it is for those who watch", "1", seen,
		"if r.Revision.IsZero() || r.Revision != s.revision {", "if s.revision.IsZero() {",
	},
	{
		"a hold counts as lost only at its expiry, and later", "2", timings,
		"	return start + t.TTL - t.Grace\n", "	return start + t.TTL + t.TTL/4\n",
	},
	{
		"a failed renewal moves the deadline", "2", renewer,
		"	case current:\n		e.noteFailure(err, now)", "	case current:\n		e.countFrom(now)\n		e.noteFailure(err, now)",
	},
	{
		"a loss leaves the context live", "2", hold,
		"	h.cancel(cause)\n	h.client.queues.freed(h, h.client.now())", "	h.client.queues.freed(h, h.client.now())",
	},
	{
		"a release leaves the context live", "2", release,
		"	h.cancel(cause.ErrReleased)\n", "	time.AfterFunc(time.Second, func() { h.cancel(cause.ErrReleased) })\n",
	},
	{
		"Err does not read the clock", "2", hold,
		"	if h.client.now() >= h.entry.LossAt() {", "	if false {",
	},
	{
		"a token follows the clock alone", "3", lockstate,
		"max(k.Token+1, uint64(max(now.Wall.UnixMilli(), 0)))", "uint64(max(now.Wall.UnixMilli(), 0))",
	},
	{
		"a failed renewal is a loss", "4", renewer,
		"	case errors.Is(err, driver.ErrLost):", "	case errors.Is(err, driver.ErrLost) || err != nil:",
	},
	{
		"a request in doubt is not cleaned up", "5", attempt,
		"		a.client.CleanUp(t.lease(), t.inDoubt.until, a.settings.RequestTimeout, a.Emit)\n", "		_ = a\n",
	},
	{
		"a cleanup ends with its first release", "5", cleanup,
		"closing && err == nil ||", "err == nil ||",
	},
	{
		"an ID is used again after its cleanup", "5", attempt,
		"		t.req.ID, t.inDoubt = newLeaseID(), InDoubt{}\n", "		t.inDoubt = InDoubt{}\n",
	},
	{
		"a release frees the lock of whoever holds it", "6", lockstate,
		"	if !k.belongsTo(holder) {\n		return false // Promise 6", "	if k.Holder == \"\" {\n		return false // Promise 6",
	},
	{
		"a lock is released before its function has returned", "7", "lock.go",
		"	return h.Verdict(fn(h.Context()))", "	context.AfterFunc(h.Context(), func() { h.Finish(ctx) })\n	return h.Verdict(fn(h.Context()))",
	},
	{
		"a runner that stepped down does not campaign again", "9", "internal/election/runner.go",
		"			if err := r.sleep(ctx, d, errCoolingDown); err != nil {", "			if err := r.sleep(ctx, 24*time.Hour, errCoolingDown); err != nil {",
	},
	{
		"a stuck holder is never replaced", "10", seen,
		"	if m.now() < m.stuckAt(s) {", "	if true || m.now() < m.stuckAt(s) {",
	},
	{
		"a holder counts as stuck after half of its TTL", "1, 10", seen,
		"	return s.since + s.ttl + s.ttl/timing.DriftPart", "	return s.since + s.ttl/2 + s.ttl/timing.DriftPart",
	},
	{
		"a waiter that gives up takes its turn with it", "–", queue,
		"	qs.advance(w.name, q)\n	if w.offer != nil {", "	if w.offer != nil {",
	},
	{
		"the end of a hold does not begin the next waiter's turn", "–", queue,
		"		notify(w.slotFreed)\n	}\n	qs.advance(name, q)\n", "		notify(w.slotFreed)\n	}\n",
	},
	{
		"the latest waiter of a process goes before the others", "–", queue,
		"	q.waiters = append(q.waiters, w)\n", "	q.waiters = slices.Insert(q.waiters, min(1, len(q.waiters)), w)\n",
	},
	{
		"a waiter has no backoff", "–", "internal/engine/wait.go",
		"	return max(min(a.settings.Backoff(a.Failures-1), timing.Jitter(a.settings.Poll, 0.2)), time.Millisecond)", "	return max(min(a.settings.Backoff(a.Failures-1), timing.Jitter(a.settings.Poll, 0.2), time.Microsecond), time.Millisecond)",
	},
	{
		"a waiter polls without a pause", "–", "internal/engine/wait.go",
		"		timer := time.NewTimer(max(next-a.client.now(), time.Millisecond))", "		timer := time.NewTimer(min(time.Millisecond, max(next-a.client.now(), time.Millisecond)))",
	},
	{
		"a shutdown leaves the holds", "7", "internal/engine/shutdown.go",
		"	for _, h := range c.unreleased() {\n		h.shutDown(ctx)\n", "	for _, h := range c.unreleased() {\n		h.cancel(cause.ErrShutdown)\n		if !h.managed {\n			h.BeginRelease()\n			c.work.Done()\n		}\n",
	},
	{
		"a LeaseManager does not campaign again after a loss", "9", "leases/release.go",
		"	m.planRelease(n, at)\n}\n\n// releaseNow", "	_ = at\n}\n\n// releaseNow",
	},
	{
		"a hold leaves a goroutine", "–", hold,
		"	h.entry.Report(event.Acquired, \"\", nil)\n", "	h.entry.Report(event.Acquired, \"\", nil)\n	go func() { <-make(chan struct{}) }()\n",
	},
	{
		"partitions of an instance that died stay free", "–", "partitions/run.go",
		"		mine, neglected := r.untaken(plan, owners)\n		r.acquireAll(append(plan.Take, mine...), false)", "		mine, neglected := r.untaken(plan, owners)\n		r.acquireAll(append(plan.Take[:len(plan.Take)/2], mine[:len(mine)/2]...), false)",
	},
}
