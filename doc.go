// Package holdfast takes distributed locks and elects leaders on storage that a team already
// runs. Several copies of a service run; exactly one may do a job: aggregate, migrate, bill, own
// a partition.
//
//	client, err := holdfast.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0")
//	… // or "azblob://account/container", or "file:/var/lib/holdfast"
//	err = client.Do(ctx, "billing", func(ctx context.Context) error {
//		return bill(ctx) // ctx ends if the lock is lost
//	})
//
// [Client.Do] suits most programs: it waits, runs the function, and releases. [Client.Lock] and
// [Client.TryLock] return a [Hold]. A [LeaderAwareRunner] keeps one of many instances at work,
// through losses and restarts. [WithSlots] lets up to n hold a lock instead of one. Package
// leases holds many locks at the price of a few, package partitions spreads names evenly over
// the instances that are alive. The backend is a [Locker], chosen by URL. The drivers are the
// packages under drivers/; package driver is what they implement, and package lockertest checks
// that they do.
//
// # Promises
//
//  1. Exclusion. At most one holder's context is live at any instant for a name, while no process
//     is paused, and the clocks that judge expiry (of the members of a replica set, or of the
//     storage service) agree within the grace. Beyond that only fencing tokens protect.
//  2. Early loss. A holder's context ends before another can be granted the lock: the local
//     deadline counts from the moment before the last successful request was sent.
//  3. Fencing. Every acquisition of a name has a token greater than every earlier one, across
//     release, expiry, cleanup, fail-over and restart, for as long as the record exists. After a
//     removal of the record this holds if the server's clock has passed the last token.
//  4. A transient error is not a loss. A failed renewal is retried until the local deadline. Only
//     the backend's definite answer or the deadline ends a hold.
//  5. Lost replies do no harm. Any request may be applied although its reply was lost. An acquire
//     in doubt is cleaned up in the background, repeatedly until one TTL after it was last sent,
//     since it may arrive late. Its ID is never used again.
//  6. Only the holder releases. A late release never frees the next holder's lock. Releasing a
//     free lock is no error.
//  7. Release after the work. The lock is released only after the function has returned or
//     panicked, also after a loss, with a context that survives the caller's cancellation.
//  8. Client wall clocks do not matter. The server's clock judges expiry. The local deadline goes
//     by elapsed time, which counts suspend on Linux and Windows.
//  9. An election never ends silently. Lost leadership leads back to campaigning. A lasting
//     failure is reported repeatedly, and retried.
//  10. No lock stays stuck. The server's clock may step back, so that a dead holder's expiry lies
//     far ahead. A Client that has seen the same holder and renewal for the holder's whole TTL,
//     in any of its calls, then takes over by compare-and-set. (Leases of Azure Blob Storage end
//     by the service's own count.)
//
// Each promise is kept at lines marked "Promise n:", and has a test file:
//
//	promise  kept by                                              test, in promises/
//	1        driver: lockstate.Lock, mongo and azblob acquire     promise01_exclusion_test.go
//	2        internal/timing Timing.LossAt, internal/renewal      promise02_early_loss_test.go
//	3        drivers' tokens: lockstate.Lock, mongo pipeline.go   promise03_fencing_test.go
//	4        internal/renewal Renewer                             promise04_transient_error_test.go
//	5        internal/engine InDoubt, Client.CleanUp              promise05_lost_answers_test.go
//	6        Release of the drivers, by ID                        promise06_only_the_holder_test.go
//	7        Client.Do, internal/election Runner.Run              promise07_release_after_work_test.go
//	8        internal/clock Elapsed, server clocks in drivers     promise08_client_clocks_test.go
//	9        internal/election Runner.Run                         promise09_election_test.go
//	10       internal/sightings Memory.Stuck, Request.Replace     promise10_no_lock_is_stuck_test.go
//
// docs/internals.md follows a lock through its life, with the file of each step.
//
// # What it does not promise
//
//   - A paused process (SIGSTOP, a long garbage collection, a virtual machine that is moved) can
//     act after its lease has ended, before it notices. Give [Hold.Token] to what the lock
//     protects and have lower tokens refused there. The drivers for MongoDB and Azure Blob
//     Storage have functions for that.
//   - BreakNow of [driver.Breaker] voids promise 1.
//   - There is no order or fairness between processes, only within one.
//   - On a sharded MongoDB cluster the routers' clocks judge expiry, so those must agree.
//   - Where the system has no clock that counts suspend (macOS, BSD), a machine that sleeps counts
//     as a paused process.
//
// # Time, and how to choose a TTL
//
// t0 is read just before the last successful request was sent. With the defaults for a TTL of
// 30 s:
//
//	t0 + TTL/3         10 s  renewal; failed attempts are repeated, each within its limit
//	t0 + TTL - grace   25 s  not renewed: the hold's context ends, cause ErrLost
//	t0 + TTL less 0.1% 30 s  another may be granted the lock; work that still runs is
//	                         an overrun: an event, and a hook
//
// Two budgets decide. The grace covers the clock skew between the backend's servers, the time
// that the work needs to stop, and the longest pause to survive. TTL - TTL/3 - grace covers the
// backend's own fail-over, or leases are lost in every fail-over. With MongoDB's default settings
// a crashed primary is replaced after 11 to 12 s, which the default TTL survives.
//
// A dead holder keeps others waiting for up to one TTL. A shorter TTL gives a faster take-over,
// with more renewals and more losses. Azure Blob Storage has leases of 15 to 60 whole seconds
// only.
package holdfast
