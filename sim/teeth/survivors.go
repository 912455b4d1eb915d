package main

// survived says why a generated fault breaks nothing, or what it costs.
var survived = map[string]string{
	"internal/engine/attempt.go, noteRefusal: one of both is enough: held != nil && held.Record.Broken && t.inDoubt.any": "a request in doubt is cleaned up at the first refusal, instead of being repeated with its ID; that is as safe, and costs releases",
	"internal/engine/attempt.go, afterExpiry: also if equal: t.position > driver.WokenWaiters":                           "at an expiry the second waiter comes 100 ms later, which matters only if the first is dead",
	"internal/renewal/calls.go, enqueueSoonDue: not if equal: now >= e.next-e.Timing.RenewEvery/4":                       "a lease that is due in exactly a quarter of its interval is renewed with the next batch instead of this one",
	"internal/election/settings.go, resolve: left out: base.Role = telemetry.Leader":                                     "metrics count an election as a lock; TestMetricsOfARunner of the module otelholdfast finds it",
	"internal/batchread/reader.go, inspect: left out: defer timer.Stop()":                                                "a timer that nobody waits for ends by itself",
	"internal/batchread/reader.go, run: left out: defer timer.Stop()":                                                    "a timer that nobody waits for ends by itself",
	"leases/campaign.go, followWakeUp: left out: c.cancelRead()":                                                         "if the read of before the release is answered while the attempt waits for its place among the parallel ones, the attempt is planned again, at the next poll at the latest",
	"leases/campaign.go, followWakeUp: left out: m.schedule(n, c)":                                                       "the attempt stays where it was planned before, and the read that follows plans it again",
	"leases/campaign.go, recordRead: left out: c.urgent, c.woken = false, false":                                         "cancelRead, which precedes the plan of the next read, does the same",
	"leases/campaign.go, cancelRead: left out: c.urgent = false":                                                         "the result of the next read does the same; a wake-up before that waits for it, at most a poll interval, and no test has this order",
	"leases/manager.go, Close: left out: m.workers.Wait(ctx)":                                                            "Close returns microseconds before the goroutines end, which have nothing left to do",
	"drivers/memory/lock.go, freed: left out: lock.KeepHistory(s.history)":                                               "the next grant shortens the history",
	"internal/engine/attempt.go, noteRefusal: left out: t.noteHolder(0)":                                                 "a waiter of a driver that names no holder polls as for a holder that it has seen for longer",
	"internal/engine/hold.go, makeContext: left out: cancel(nil)":                                                        "a context that nobody uses ends with its parent",
	"internal/engine/release.go, TryRelease: not if equal: c.now()+retryIn >= expiry":                                    "one release more, at the very moment of the expiry",
	"internal/engine/attempt.go, Schedule: one of both is enough: t.Readable() && !t.reserved && left > t.holder.TTL/4":  "reads come somewhat sooner, for a lock that is reserved or whose holder is about to be lost",
	"internal/engine/handoff.go, handOver: not if equal: c.now() >= h.handoffUntil":                                      "one handoff more, at the very moment at which they end",
	"internal/engine/wait.go, wokenUp: left out: r.schedule(t)":                                                          "the next request comes at the interval for waiters that nothing wakes, once",
	"internal/engine/attempt.go, afterExpiry: left out: after += time.Duration(t.position) * spacing":                    "at an expiry the third waiter and those behind it ask at one time; their turns still decide who is granted the lock",
}
