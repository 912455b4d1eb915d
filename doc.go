// Package holdfast provides distributed locks and leader election on storage that a team already
// runs. Several copies of a service run, but only one may do a job: aggregate, migrate, bill, own
// a partition.
//
//	// or "azblob://account/container", or "file:/var/lib/holdfast"
//	client, err := holdfast.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0")
//	…
//	err = client.Do(ctx, "billing", func(ctx context.Context) error {
//		return bill(ctx) // ctx ends if the lock is lost
//	})
//
// A leader election, in each copy of a service:
//
//	runner, err := holdfast.NewLeaderAwareRunner(client, "billing")
//	if err != nil {
//		return err
//	}
//	err = runner.Run(ctx, func(ctx context.Context) error { // in one copy; after a loss all campaign again
//		for ctx.Err() == nil {
//			bill(ctx) // until another leads, or the service stops
//		}
//		return context.Cause(ctx)
//	})
//
// What to use:
//
//   - [Client.Do] suits most programs: it waits for the lock, runs the function, and releases.
//   - [Client.Lock] and [Client.TryLock] return a [Hold], which the program releases itself.
//   - [Client.DoAll] and [Client.LockAll] take the locks of several names, all or none.
//   - A [LeaderAwareRunner] runs a task on one of many instances, and campaigns again after a
//     loss.
//   - [WithSlots] lets up to n holders have a lock, instead of one.
//   - [WithShared] lets any number of readers have a lock, or one writer.
//   - Package leases acquires and renews the locks of thousands of names in one process.
//   - Package partitions spreads partitions evenly over the instances that are alive.
//
// The backend is a [Locker], which [Open] chooses by URL. The packages under drivers/ implement
// it. Package driver has the contract, and package lockertest has the tests for drivers.
//
// # Promises
//
//  1. Exclusion. At most one holder's context is live at any instant for a name. This holds while
//     no process is paused, and while the clocks that judge expiry (of the members of a replica
//     set, or of the storage service) agree within the grace. Otherwise only fencing tokens
//     protect.
//  2. Early loss. A holder's context ends before another can be granted the lock: the local
//     deadline counts from the moment before the last successful request was sent.
//  3. Fencing. Every acquisition of a name has a token greater than every earlier one, across
//     release, expiry, cleanup, fail-over and restart, for as long as the lock's record exists.
//     A token is the backend's time of the grant in milliseconds since 1970, or the last token plus
//     one if that is more. So after a removal of the record the promise holds if the backend's
//     clock has passed the last token.
//  4. A transient error is not a loss. A failed renewal is retried until the local deadline. A hold
//     is lost only by the backend's definite answer or at the deadline.
//  5. Lost replies do no harm. The backend may have applied a request whose reply was lost. A
//     waiter repeats such an acquire with the same ID, which is safe. If it gives up, releases with
//     that ID are repeated in the background until one TTL after the acquire was last sent, because
//     the acquire may arrive late. Later acquires have new IDs: a late release could end their lease.
//  6. Only the holder releases. A late release never frees the next holder's lock. Releasing a
//     free lock is no error.
//  7. Release after the work. The lock is released only after the function has returned or
//     panicked, also after a loss. The release is sent even if the caller's context has ended.
//  8. Client wall clocks do not matter. The server's clock judges expiry. The local deadline goes
//     by elapsed time, which counts suspend on Linux and Windows. (A "file:" backend on another
//     system than Linux has only the wall clock of its machine; see its documentation.)
//  9. An election never ends silently. After a loss of leadership the instance campaigns again. A
//     lasting failure is reported repeatedly, and retried.
//  10. No lock stays stuck. If the server's clock steps back, a dead holder's expiry may lie far
//     in the future. A Client takes such a lock over by compare-and-set when it has seen the same
//     holder without a renewal for the holder's whole TTL. All calls of the Client share what it
//     has seen. (Azure Blob Storage needs no such takeover: the service's own clock, which does
//     not step back, ends every lease that Holdfast takes. A lease without an end, which another
//     program or a person has taken there, keeps the lock until somebody releases or breaks it.)
//
// With [WithShared], exclusion is that of one writer from all others, and each reader is a holder in the sense of the other
// promises. Every grant has a greater token than all before it, so a writer's exceeds those of all earlier readers, and the
// reverse. A lock is stuck when none of its readers has renewed for the longest of their TTLs.
//
// The lines that keep a promise are marked "Promise n:". Each promise has a test file:
//
//	promise  kept by                                              test, in test/promises/
//	1        driver: lockstate.Lock, mongo pipeline, azblob acquire promise01_exclusion_test.go
//	2        internal/timing Timing.LossAt, internal/renewal      promise02_early_loss_test.go
//	3        drivers' tokens: lockstate.Lock, mongo pipeline.go   promise03_fencing_test.go
//	4        internal/renewal Renewer.noteResult                  promise04_transient_error_test.go
//	5        internal/engine InDoubt, Client.CleanUp              promise05_lost_answers_test.go
//	6        Release of the drivers, by ID                        promise06_only_the_holder_test.go
//	7        Hold.Finish, leases LeaseManager.workEnded           promise07_release_after_work_test.go
//	8        internal/clock Elapsed, server clocks in drivers     promise08_client_clocks_test.go
//	9        internal/election Runner.Run                         promise09_election_test.go
//	10       internal/sightings Memory.Stuck, Request.Replace     promise10_no_lock_is_stuck_test.go
//
// docs/internals.md follows a lock through its life, with the file of each step.
//
// # What it does not promise
//
//   - A paused process (SIGSTOP, a long garbage collection, a virtual machine that is moved) can
//     act after its lease has ended, before it notices. Send [Hold.Token] with each write, and let
//     the resource that the lock protects refuse lower tokens. Most drivers have functions for
//     that; docs/fencing.md names them.
//   - [Client.BreakNow] voids promise 1. So does removing the record of a held lock, or the
//     collection, container or folder with it: the next request makes them again (a folder: the next
//     process that starts) and is granted the lock, and both holders work until the first notices at its
//     next renewal. Promise 3 says when the second token is greater; with "mem:" it always is.
//   - Waiters of one process are served in order. Between processes there is an order of arrival
//     only where the backend has a [driver.Queue], and a waiter that is slow to answer loses its
//     position.
//   - On a sharded MongoDB cluster the routers' clocks judge expiry, so they must agree.
//   - Where the system has no clock that counts suspend (macOS, BSD), a machine that sleeps counts
//     as a paused process.
//
// # Time, and how to choose a TTL
//
// t0 is the moment just before the last successful request was sent. With the default TTL of
// 30 s:
//
//	t0 + TTL/3         10 s  renewal; failed attempts are retried, each with its own time limit
//	t0 + TTL - grace   25 s  if not renewed, the hold's context ends with the cause ErrLost
//	t0 + TTL less 0.1% 30 s  another may be granted the lock; work that still runs is
//	                         an overrun: an event is reported, and a hook is called
//
// Choose the TTL and the grace by two sums. The grace must cover the clock skew between the
// backend's servers, the time that the work needs to stop, and the longest pause to survive.
// TTL - TTL/3 - grace must cover the backend's own fail-over; otherwise all leases are lost in
// every fail-over. With MongoDB's default settings a crashed primary is replaced after 11 to 12 s,
// which the default TTL survives.
//
// A dead holder keeps others waiting for up to one TTL, with some backends for longer: on Azure 18 s. A shorter TTL gives
// a faster takeover, with more renewals and more losses. Azure Blob Storage allows only leases of 15 to 60 whole
// seconds.
package holdfast
