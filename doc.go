// Package holdfast takes distributed locks and elects leaders on storage that a
// team already runs. Several copies of a service run; exactly one may do a job:
// aggregate, migrate, bill, own a partition.
//
//	client, err := holdfast.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0")
//	… // or "azblob://account/container", or "file:/var/lib/holdfast"
//	err = client.Do(ctx, "billing", func(ctx context.Context) error {
//		return bill(ctx) // ctx ends if the lock is lost
//	})
//
// [Client.Do] is the way for most: it waits, runs, and releases. [Client.Lock] and
// [Client.TryLock] give a [Hold] to those who need one. A [LeaderAwareRunner] keeps
// one of many instances at work, through losses and restarts. [WithSlots] lets up to n
// hold a lock instead of one. A [LeaseManager] holds many at the price of a few;
// [Partitions] spreads names evenly over the instances that are alive. The backend is a
// [Locker], chosen by URL; the drivers are in the packages under drivers/, and
// package lockertest tells whether one is sound.
//
// # What it promises
//
//  1. Exclusion. At most one holder's context is live at any instant for a name,
//     while no process is paused and the clocks that judge expiry (the members of a
//     replica set, the storage service) agree within the grace. Beyond that only
//     fencing tokens protect.
//  2. Early loss. A holder's context ends before another can be granted the lock:
//     the local deadline counts from the moment before the last successful
//     request was sent.
//  3. Fencing. Every acquisition of a name has a token greater than every earlier
//     one, across release, expiry, clean-up, fail-over and restart, for as long as
//     the record exists; after a removal of the record, provided that the server's
//     clock has passed the last token.
//  4. A transient error is not a loss. A failed renewal is retried until the local
//     deadline. Only the backend's definite answer or the deadline ends a hold.
//  5. Lost answers are harmless. Any request may be applied although its reply was
//     lost. An acquire that ended in doubt is cleaned up in the background, again
//     and again until one TTL after it was last sent, since it may land late. Its ID
//     is never used again.
//  6. Only the holder releases. A stale release never frees the next holder.
//     Releasing what is free already is no error.
//  7. Release after the work. The lock is released only after the function has
//     returned or panicked, also after a loss, with a context that survives the
//     caller's cancellation.
//  8. Client wall clocks do not matter. Expiry is judged by the server's clock, the
//     local deadline by elapsed time, which counts suspend on Linux and Windows.
//  9. An election never dies silently. Lost leadership leads back to campaigning; a
//     lasting failure is reported repeatedly, and retried.
//  10. No lock is stuck. If the server's clock steps back, so that a dead holder's
//     expiry lies far ahead, a Client that has seen the same holder and renewal for
//     the holder's whole TTL, in any of its calls, takes over by compare-and-set. (The
//     leases of Azure Blob Storage end by the service's own count.)
//
// # What it does not promise
//
//   - A process that is paused (SIGSTOP, a long garbage collection, a virtual machine
//     that is moved) can act after its lease has ended, before it notices. Give
//     [Hold.Token] to what the lock protects and have lower tokens refused there;
//     the drivers for MongoDB and Azure Blob Storage have what does it.
//   - Breaker.BreakNow voids promise 1, as its name says.
//   - There is no order or fairness between processes, only within one.
//   - On a sharded MongoDB cluster the routers' clocks judge, so those must agree.
//   - Where the system has no clock that counts suspend (macOS, BSD), a machine
//     that sleeps counts as a paused process.
//
// # Time, and how to choose a TTL
//
// With t0 read just before the last successful request was sent, and the defaults
// for a TTL of 30 s:
//
//	t0 + TTL/3         10 s  renew; failures are retried, each try within its limit
//	t0 + TTL - grace   25 s  not renewed: the hold's context ends, cause ErrLost
//	t0 + TTL less 0.1% 30 s  another may be granted the lock; work still running is
//	                         an overrun: an event, and a hook
//
// The budget is: clock skew between the backend's servers + the time the work needs
// to stop + the longest pause to survive ≤ grace; and the backend's own fail-over ≤
// TTL - TTL/3 - grace, or leases are lost in every fail-over. A MongoDB primary that
// crashes is replaced after 11 to 12 s with MongoDB's default settings, which the
// default TTL survives. A dead holder keeps others waiting for up to one TTL: a
// shorter TTL buys a faster take-over at the price of more renewals, more losses.
// Azure Blob Storage has leases of 15 to 60 whole seconds only.
package holdfast
