// Package driver is the contract between Holdfast and the storage that keeps its locks.
// Authors of drivers import it. Programs import package holdfast, which has aliases of
// the types that they meet.
//
// # Writing a driver
//
//  1. Implement [Locker]: acquire, renew, release and inspect one lease by its name and
//     its [LeaseID]. The backend's clock judges expiry, and every grant gets a higher token.
//  2. Declare in [Info] what the backend is called, what it accepts ([Limits]: the range of TTLs, and the
//     longest name, owner and data), and what it promises: who judges expiry, whether grants survive a
//     fail-over, what stays of a lock that is free. What is not promised is declared, too. Check every argument before I/O with
//     [Request.Validate], [ValidateName], [ValidateTTL] and [ValidateData].
//  3. Declare [Capabilities]: what the backend can do beyond Locker, such as waking
//     waiters or renewing many leases in one call. All of them are optional. Holdfast works
//     without them, by polling and by single calls.
//  4. Wrap each error in an [OpError]. Info.Backend is what the errors call the
//     backend. The text begins with "holdfast: " once: make an error that wraps one of this package with [Errorf], and
//     take the text of one from [ErrorText]. Return [ErrHeld] (as a [HeldError]), [ErrLost],
//     [ErrConflict], [ErrInvalid] or [ErrClosed] only if the outcome is certain, and
//     [ErrDenied] or [ErrDamaged] only if the request certainly changed nothing and a person
//     must act. Set OpError.NotSent only if the request certainly never left the process.
//  5. Call [Register] in an init function with a [Description], so that holdfast.Open finds
//     the driver by the scheme of a URL, and messages hide its secrets. [CheckParams] refuses
//     URL parameters that the driver does not know, and [ValidatePlace], [ValidateFolder] and [ValidateURLEnds] typos
//     that would make other locks.
//  6. Call lockertest.Run from one test. It checks every clause of this contract and
//     quotes the clause that the driver breaks.
//
// Package [github.com/holdfast-go/holdfast/drivers/memory] is the shortest driver to read.
//
// # Helpers
//
// Package [github.com/holdfast-go/holdfast/driver/cas] has a whole Locker for any store that can write a value on
// the condition that it has a given version, such as an ETag. A driver for it implements three methods. Package
// [github.com/holdfast-go/holdfast/driver/guard] has what drivers' guards share, and package
// [github.com/holdfast-go/holdfast/driver/driverutil] what else they repeat, such as to parse a URL without showing any of it. Package
// [github.com/holdfast-go/holdfast/driver/serverurl] parses URLs with a user, a password, servers and files for TLS.
// Package [github.com/holdfast-go/holdfast/driver/waitqueue] has a process's part in the queues of locks and in a stream
// of wake-ups, [github.com/holdfast-go/holdfast/driver/retry] the backoff of a call that is repeated, and
// [github.com/holdfast-go/holdfast/driver/sightings] since when each record has been seen unchanged.
//
// Package [github.com/holdfast-go/holdfast/driver/lockstate] has the rules by which a
// lock changes hands. It is for stores that keep bytes but cannot apply the rules
// themselves, such as files. Package [github.com/holdfast-go/holdfast/driver/lockrecord] has the form in
// which they keep a lock. [FormatDuration], [Quote], [QuoteName] and [ByteRange] write
// durations, quoted values and sizes as error messages show them.
//
// # Secrets
//
// A lease ID is a secret: any process that knows it can renew and release the lease.
// Nothing prints a [LeaseID], a [LeaseState], a [Revision], or a struct that has one. A driver must not
// put an ID or a credential into an error or a log line.
package driver
