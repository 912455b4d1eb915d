// Package azblob keeps locks as leases of blobs in Azure Blob Storage: one block
// blob per lock, in one container.
//
// Importing the package registers the URL scheme "azblob" for
// [github.com/holdfast-go/holdfast.Open]; [Open] has the forms of the URL. A
// program that has a container client of its own, with any credential, makes a
// Locker with [New].
//
// # Credentials
//
// With a URL the credential is, in this order,
//
//   - for the account "emulator", the one that every emulator has;
//   - with the URL parameter client_id, the managed identity with that client ID;
//   - AZURE_STORAGE_CONNECTION_STRING, with an account key or a SAS; the account
//     that it names, if any, must be the URL's;
//   - AZURE_STORAGE_KEY, the account's key;
//   - AZURE_STORAGE_SAS_TOKEN, a SAS;
//   - azidentity's default chain: the environment, workload identity, managed
//     identity, and the command-line tools of a developer.
//
// Which kind is used is logged at level debug ([WithLogger]), never its value.
// The identity needs the role Storage Blob Data Contributor on the container, a
// SAS the permissions read, create, write and list. The right to make containers
// is needed only if the container does not exist yet. For the endpoints of
// Azure's sovereign clouds the identity's login server is known; for others
// AZURE_AUTHORITY_HOST names it.
//
// # How it works
//
// Acquire takes the blob's lease with the request's ID as lease ID, so that
// taking it again after a lost answer is the same; then it reads the blob's
// metadata; then, under the lease and only if nothing was written since, it
// writes who holds the lock with which token. If that fails the lease is given
// back, provided that the blob is unchanged: a record whose fate is in doubt keeps
// it, and the caller releases it by its ID. The token is the larger of the last one plus one and the service's time
// in milliseconds (its Date header has whole seconds). Container and blob are
// made on demand.
//
// That is three requests for an acquire, one for a try that finds the lock held,
// one for a renewal, one for a release; five for the first acquire of a name, and
// seven in a container that does not exist. A waiter polls, every 5 s by default;
// the service wakes nobody. With the default TTL of 30 s a held lock costs 360
// requests an hour, and each process that waits for a name 720. Many names are looked at
// together by listing the blobs, where that is cheaper (see [Locker.InspectBatch]).
//
// Every request has a time limit of its own ([WithRequestTimeout]) and is repeated up to
// three times, never beyond the context: if the service asks by Retry-After to wait
// longer than that, its refusal is returned at once. The request that takes the lease is repeated only if the
// service was too busy for it (429, or 503 ServerBusy): a copy still on its way
// could take the lease after the release. On any other failure the outcome is in
// doubt, and the caller asks again with the same ID or releases it, as Client
// does. A break is sent only once.
//
// # What differs from other backends
//
// A TTL is 15 to 60 whole seconds, and the service does not tell how much of it
// is left, nor whose lease it was that refused an acquire: the error says only
// that the lock is held, and Inspect tells by whom. A lease keeps the length that it was taken for: Renew with another
// TTL renews it for that length. Taking the lock again with the same ID makes it
// longer, and an acquire that succeeds never makes it shorter. To ask for a
// shorter TTL than before takes two requests, though, and between them the lease
// has the shorter one: no request tells whose lease it is without setting its
// length. If such a repeat fails, the lease may have got shorter for good, and a
// renewal with it, until a repeat succeeds. So a program repeats an acquire with
// the TTL that it had, or a longer one; Client always does.
//
// Lease IDs are UUIDs. To the service, taking a lease again with the ID that it
// had is one and the same thing while the lease runs, after it expired, was
// broken or released, as long as no other ID had it since: there is no telling a
// repeat from a new start. So an ID that comes back then keeps its token, and the
// data stay; nobody else had the lock in between. A program that wants a new
// token uses a new ID, as Client does.
//
// After a lease's natural end the service may refuse others for some more
// seconds. Two holders never overlap by that.
//
// # The blobs
//
// A lock's blob is named like the lock, with every byte other than an ASCII
// letter, a digit, "-" and "_" as "=" and two hex digits. Its contents are the
// lock's data, its metadata the record: holdfastv (1, the version), holdfastid
// (the lease ID of the last grant), holdfasttoken, holdfastowner
// (percent-encoded), holdfastttl (seconds) and holdfastacquired. Blobs without
// them are no lock's until somebody takes one of that name; all other metadata,
// a [Fence]'s among them, are kept. A blob whose record has another version or is
// damaged is never changed. An acquire with data is refused if the blob has
// contents and no record, or is an append or page blob: those contents are
// somebody's. Such a lock can be taken without data, which leaves them alone;
// after that the contents of a block blob are the lock's data.
//
// Nothing else should write or lease these blobs, and no lifecycle rule should delete
// them: the last token goes with the blob. A new blob's first token is the service's
// time, which it tells in seconds, so tokens can come again, or be lower, if a blob is
// deleted within a second of a grant. Whoever may write the container can break any
// lease in it, so that a lease ID in the metadata gives away no right beyond that; the
// driver itself never shows one.
//
// # The leader election pattern
//
// Azure's guidance for electing a leader by a blob's lease asks for five things.
//
//   - The task is cancelled when the lease cannot be renewed: the context of the
//     hold, or of the runner's task, ends a grace before the lease can end, even
//     if a request hangs.
//   - The lease is released when the task ends: after it has returned or panicked,
//     also if the caller's context has ended.
//   - Followers keep trying at an interval: holdfast.WithPollInterval, jittered by
//     a fifth. A runner whose backend fails goes on trying.
//   - A leader that hangs but still renews is found: holdfast.WithStallTimeout with
//     holdfast.Heartbeat, and holdfast.WithHealthCheck.
//   - Nothing else uses the lease blob: each lock has one of its own.
//
// # The emulator
//
// Azurite passes the same tests, with one difference worth knowing: it renews an
// expired lease whatever ID the request names, where Azure compares it.
package azblob
