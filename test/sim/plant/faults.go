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
	request   = "internal/engine/request.go"
	outcome   = "internal/engine/waiter/outcome.go"
	cleanup   = "internal/engine/cleanup.go"
	hold      = "internal/engine/hold.go"
	queue     = "internal/engine/queue.go"
	release   = "internal/engine/release.go"
	renewer   = "internal/renewal/renewer.go"
	lockstate = "driver/lockstate/lockstate.go"
	seen      = "internal/sightings/sightings.go"
	sighted   = "driver/sightings/sightings.go"
	positions = "driver/lockstate/queue.go"
	leaving   = "driver/waitqueue/positions.go"
	hints     = "driver/waitqueue/stream.go"
	wake      = "internal/engine/waiter/wake.go"
	schedule  = "internal/engine/waiter/plan.go"
	timings   = "internal/timing/timing.go"
	readers   = "driver/lockstate/readers.go"
	several   = "internal/engine/multiwait.go"
)

var faults = []fault{
	{
		"an unexpired lease is granted to another that has seen it", "1", lockstate,
		"	case k.Holder != \"\" && !req.Replace.IsZero() && req.Replace == k.revision():", "	case k.Holder != \"\" && !req.Replace.IsZero():",
	},
	{
		"a renewal leaves the revision as it is for those who watch", "1", sighted,
		"		s.mark, s.since = mark, now\n", "		s.mark = mark\n",
	},
	{
		"a renewal is known by its number alone", "1", lockstate,
		"		k.Renewals = at\n", "		k.Renewals++\n",
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
		"a loss leaves the context live", "2", release,
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
		"a renewal that is denied is a loss", "4", renewer,
		"	case errors.Is(err, driver.ErrLost):", "	case errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrDenied):",
	},
	{
		"a request in doubt counts as not sent", "5", request,
		"	return driver.NotSent(err) && errors.As(err, &op) && op.Name == name\n", "	return !errors.As(err, &op) || name != \"\"\n",
	},
	{
		"a request in doubt is not cleaned up", "5", outcome,
		"	actions = append(actions, Action{Kind: CleanUp, Slot: slot, At: s.inDoubt.Until, ID: s.id})\n", "",
	},
	{
		"a cleanup ends with its first release", "5", cleanup,
		"closing && err == nil ||", "err == nil ||",
	},
	{
		"an ID is used again after its cleanup", "5", outcome,
		"	s.id, s.inDoubt = w.env.NewID(), InDoubt{}\n", "	s.inDoubt = InDoubt{}\n",
	},
	{
		"a release frees the lock of whoever holds it", "6", lockstate,
		"	if !k.belongsTo(holder) {\n		return false // Promise 6", "	if k.Holder == \"\" {\n		return false // Promise 6",
	},
	{
		"a lock is released before its function has returned", "7", "internal/engine/work.go",
		"	return h.Verdict(h.Call(", "	context.AfterFunc(h.Context(), func() { h.Finish(ctx) })\n	return h.Verdict(h.Call(",
	},
	{
		"a runner that stepped down does not campaign again", "9", "internal/election/runner.go",
		"			if err := r.sleep(ctx, d, errCoolingDown); err != nil {", "			if err := r.sleep(ctx, 24*time.Hour, errCoolingDown); err != nil {",
	},
	{
		"a stuck holder is never replaced", "10", seen,
		"	if now < seen.stuckAt(since, now) {", "	if true || now < seen.stuckAt(since, now) {",
	},
	{
		"a holder counts as stuck after half of its TTL", "1, 10", seen,
		"	return since + seen.ttl + seen.ttl/timing.DriftPart", "	return since + seen.ttl/2 + seen.ttl/timing.DriftPart",
	},
	{
		"a waiter that gives up takes its turn with it", "–", queue,
		"q.waiters, i, i+1)\n	}\n	qs.advance(w.name, q)\n", "q.waiters, i, i+1)\n	}\n",
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
		"a waiter has no backoff", "–", outcome,
		"	return max(d, time.Millisecond)", "	return max(min(d, time.Microsecond), time.Millisecond)",
	},
	{
		"a waiter polls without a pause", "–", schedule,
		"	next := s.seenAt + w.jitter(poll, pollJitter)\n", "	next := s.seenAt + min(w.jitter(poll, pollJitter), time.Millisecond)\n",
	},
	{
		"a shutdown leaves the holds", "7", "internal/engine/shutdown.go",
		"	for _, h := range c.unreleased() {\n		h.shutDown(ctx)\n",
		"	for _, h := range c.unreleased() {\n		h.cancel(cause.ErrShutdown)\n		if !h.managed {\n			h.BeginRelease()\n			c.work.Done()\n		}\n",
	},
	{
		"a LeaseManager does not campaign again after a loss", "9", "leases/release.go",
		"	m.planRelease(n, m.client.Now()+min(m.settings.Grace, n.hold.ExpiresIn()))\n", "",
	},
	{
		"a hold leaves a goroutine", "–", "internal/engine/lock.go",
		"	h.entry.Report(event.Acquired, \"\", nil)\n", "	h.entry.Report(event.Acquired, \"\", nil)\n	go func() { <-make(chan struct{}) }()\n",
	},
	{
		"partitions of an instance that died stay free", "–", "partitions/run.go",
		"		mine, neglected := r.untaken(plan, owners)\n		r.acquireAll(append(plan.Take, mine...), false)",
		"		mine, neglected := r.untaken(plan, owners)\n		r.acquireAll(append(plan.Take[:len(plan.Take)/2], mine[:len(mine)/2]...), false)",
	},
	{
		"a free lock is reserved for nobody", "–", positions,
		"k.reservedFor(who, now) <= 0)", "k.reservedFor(who, now) <= driver.MaxTurn)",
	},
	{
		"a free lock stays reserved for twice as long", "10", positions,
		"min(max(k.Expires+turn-now.Elapsed, 0), turn)", "max(k.Expires+2*turn-now.Elapsed, 0)",
	},
	{
		"a waiter enters the queue between other waiters", "–", positions,
		"		k.Queue = append(k.Queue, who)\n", "		k.Queue = slices.Insert(k.Queue, min(1, len(k.Queue)), who)\n",
	},
	{
		"a grant removes waiters that were not woken", "–", positions,
		"		case i < place && !w.Polls && left > 0:\n", "		case i <= place && !w.Polls:\n",
	},
	{
		"a grant removes two waiters of a long queue, although one was woken", "–", positions,
		"	left := driver.WokenOf(len(slices.DeleteFunc(slices.Clone(k.Queue), polls)))", "	left := driver.WokenWaiters",
	},
	{
		"dead waiters keep the first positions", "–", positions,
		"	k.Queue = rest\n", "	_ = rest\n",
	},
	{
		"a refreshed position ends when the first one would have", "–", positions,
		"		k.Queue[position-1] = who\n", "		k.Queue[position-1].Until += 0 * lasts\n",
	},
	{
		"a waiter that gives up keeps its position", "–", leaving,
		"		if at.may || at.open > 0 {\n", "		if at.may && at.open > 0 {\n",
	},
	{
		"a caller whose first request has no answer keeps the position", "–", leaving,
		"		if at.may || at.open > 0 {\n", "		if at.may {\n",
	},
	{
		"a hint that came early is dropped", "–", hints,
		"		s.keep(now, key, after)\n", "		_ = after\n",
	},
	{
		"a woken waiter does not send a request", "–", wake,
		"		s.turn = min(s.turn, now+min(up.After, driver.MaxTurns*w.traits.Turn))\n",
		"		if up.After > 0 {\n			s.turn = min(s.turn, now+min(up.After, driver.MaxTurns*w.traits.Turn))\n		}\n",
	},
	{
		"a second waiter comes two turns late", "–", wake,
		"now+min(up.After, driver.MaxTurns*w.traits.Turn))", "now+3*min(up.After, driver.MaxTurns*w.traits.Turn))",
	},
	{
		"a waiter asks for a position only once", "–", schedule,
		"max(s.lasts, minQueueFor)/2), pollJitter))", "max(s.lasts, minQueueFor)/2)*20, pollJitter))",
	},
	{
		"a release does not say that others wait", "–", request,
		"Contended: got.Contended || contended,", "Contended: got.Contended && contended,",
	},
	{
		"a writer is granted a lock that readers hold", "1", readers,
		"	return req.Mode == driver.Shared && len(k.Readers) > 0 &&", "	return len(k.Readers) > 0 &&",
	},
	{
		"a reader is granted a lock that a writer holds", "1", readers,
		"	return req.Mode == driver.Shared && len(k.Readers) > 0 &&", "	return req.Mode == driver.Shared &&",
	},
	{
		"the release of one reader frees the lock", "1", readers,
		"	k.Readers = slices.Delete(slices.Clone(k.Readers), i, i+1)\n	k.sum()\n", "	k.Readers = nil\n	k.sum()\n",
	},
	{
		"a shared lock ends with the lease of its first reader", "1", readers,
		"max(k.TTL, r.TTL), max(k.Expires, r.Expires)\n", "max(k.TTL, r.TTL), min(k.Expires, r.Expires)\n",
	},
	{
		"the renewal of a reader leaves the revision as it is", "1", readers,
		"	k.countRenewal(now) // so the revision changes", "	// so the revision changes",
	},
	{
		"a repeated request makes a second reader", "5", lockstate,
		"	case shared && k.reads(holder, now), !free", "	case !free",
	},
	{
		"a request of one reader counts as that of another", "6", readers,
		"	return slices.IndexFunc(k.Readers, func(r Reader) bool { return r.Holder == holder })",
		"	if i := slices.IndexFunc(k.Readers, func(r Reader) bool { return r.Holder == holder }); i >= 0 {\n		return i\n	}\n" +
			"	return len(k.Readers) - 1",
	},
	{
		"a reader overtakes a writer that waits", "–", positions,
		"return !w.Shared && w.Until > now.Elapsed })\n", "return false })\n",
	},
	{
		"a reader that tries takes the place of one of its process", "–", "internal/engine/lock.go",
		"	a.nobody = s.Mode", "	_ = s.Mode",
	},
	{
		"readers and writers of a process are one waiter", "–", "internal/engine/client.go",
		"	for i := range c.lanes {\n		c.lanes[i].begin(c.closing, c.base, driver.NewWaiterID(), ",
		"	one := driver.NewWaiterID()\n	for i := range c.lanes {\n		c.lanes[i].begin(c.closing, c.base, one, ",
	},
	{
		"readers wait for each other", "–", readers,
		"k.Held(now) && !k.full(now)\n}\n\n// full", "k.Held(now) && k.full(now)\n}\n\n// full",
	},
	{
		"a release wakes only one waiter", "–", positions,
		"	return all[:max(readers, driver.WokenOf(len(all)))]", "	return all[:min(1, len(all))]",
	},
	{
		"the end of the last reader ends the queue", "–", readers,
		"		k.Holder, k.Readers = \"\", nil\n		return\n", "		k.Holder, k.Readers, k.Queue = \"\", nil, nil\n		return\n",
	},
	{
		"several names are locked without the last", "–", several,
		"	for i, name := range w.multi.names {\n		if err := w.waitFor(ctx, name); err != nil {",
		"	for i, name := range w.multi.names[:max(1, len(w.multi.names)-1)] {\n		if err := w.waitFor(ctx, name); err != nil {",
	},
	{
		"a call for several names keeps what it has when it fails", "–", several,
		"			w.multi.cancel(nil)\n			w.letGo(ctx)\n", "			w.multi.cancel(nil)\n",
	},
	{
		"the hold of several names outlives one of them", "2", "internal/engine/multihold.go",
		"	m.cancel(why)\n", "	_ = why\n",
	},
}
