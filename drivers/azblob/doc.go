// Package azblob keeps locks as leases of blobs in Azure Blob Storage: one block blob per
// lock, in one container.
//
// Importing the package registers the URL scheme "azblob" for
// [github.com/holdfast-go/holdfast.Open]; [Open] lists the forms of the URL. A program with a
// container client of its own, with any credential, creates a Locker with [New].
//
// # Credentials
//
// With a URL, the first of these credentials that is available is used:
//
//   - for the account "emulator": the key that every emulator has
//   - with the URL parameter client_id: the managed identity with that client ID
//   - AZURE_STORAGE_CONNECTION_STRING, with an account key or a SAS; an account that it names
//     must be the URL's
//   - AZURE_STORAGE_KEY: the account's key
//   - AZURE_STORAGE_SAS_TOKEN: a SAS, as it is when the Locker is opened: a later one is used only by a new Locker
//   - azidentity's default chain: the environment, workload identity, managed identity, and
//     the command-line tools of a developer
//
// The kind of credential is logged at level debug ([WithLogger]), its value never. The identity
// needs the role Storage Blob Data Contributor on the container, a SAS the permissions read,
// create, write and list. The right to create containers is needed only if the container does
// not exist yet. The login servers of Azure's sovereign clouds are known from the endpoint;
// for other clouds AZURE_AUTHORITY_HOST names it.
//
// # How it works
//
// An acquire has three steps:
//
//   - It takes the blob's lease, with the request's ID as lease ID. So a repeat after a lost
//     answer has the same effect.
//   - It reads the blob's metadata.
//   - Under the lease, and only if nothing was written since, it writes the record: who holds
//     the lock, with which token.
//
// If the last step fails, the lease is released, provided that the blob is unchanged. If the
// record may have been written, the lease is kept, and the caller releases it by its ID. The
// token is the greater of the last token plus one and the service's time in milliseconds (its
// Date header has whole seconds). Container and blob are created on demand.
//
// So an acquire takes three requests, five for the first acquire of a name, and seven in a
// container that does not exist. An attempt that finds the lock held, a renewal and a release
// take one each. The service notifies nobody, so a waiter polls, every 2.5 to 15 s by default: the
// less often, the longer the lock has had its holder. With the default TTL of 30 s a held lock
// costs 360 requests an hour, and each process that waits for a steady holder's name 240. Many names are checked together by listing the
// blobs where that is cheaper (see [Locker.InspectBatch]).
//
// Every request has its own time limit ([WithRequestTimeout]) and is repeated up to three times,
// never beyond the context. If the service asks by Retry-After to wait longer than that, its
// refusal is returned at once. The exceptions are:
//
//   - The request that takes the lease is repeated only if the service was too busy for it (429,
//     or 503 ServerBusy): an earlier copy could arrive later and take the lease after its
//     release. After any other failure the outcome is unknown, and the caller repeats the
//     acquire with the same ID or releases it, as Client does.
//   - Three requests are sent only once: a break, the release of a lease for which no record could be written, and, after the record
//     could not be read for want of a right, the read with which the next acquire begins.
//
// # Differences from other backends
//
// A TTL is 15 to 60 whole seconds. The service does not say how much of it is left, or whose
// lease refused an acquire: the error says only that the lock is held, and Inspect reports the
// holder.
//
// Another program, or a person, can take the lease of a lock's blob, also one that never ends. Inspect, List and
// InspectBatch report that ([driver.Record].Endless), and no owner and no token. [driver.BreakUnknown] names such a holder.
// The service ends a lease without an end as soon as it is broken, by Break as by BreakNow.
//
// A lease keeps the length for which it was taken: Renew with another TTL renews it for that
// length. An acquire with the same ID can make it longer, and one that succeeds never makes it
// shorter. But a repeat with a shorter TTL takes two requests, since no request shows the
// lease's holder without setting its length, and between them the lease has the shorter length.
// If such a repeat fails, the lease and its renewals may stay shorter until a repeat succeeds.
// So repeat an acquire with its earlier TTL or a longer one, as Client always does.
//
// Lease IDs are UUIDs. The service does not distinguish a repeat from a new acquire with the
// same ID, even after the lease expired, was broken or released, as long as no other ID had it
// in between. Then the ID keeps its token, and the data stay. A program that needs a new token
// uses a new ID, as Client does.
//
// After the natural end of a lease the service may refuse others for some more seconds. Two
// holders never overlap because of that.
//
// # The blobs
//
// A lock's blob has the lock's name, with every byte other than an ASCII letter, a digit, "-"
// and "_" written as "=" and two hex digits. Its contents are the lock's data. Its metadata are
// the record:
//
//   - holdfastv: 1, the version
//   - holdfastid: the lease ID of the last grant
//   - holdfasttoken
//   - holdfastowner, percent-encoded
//   - holdfastttl, in seconds
//   - holdfastacquired
//   - holdfastwrites: how often the data were written since the grant, and a mark of the last
//     write; missing before the first
//   - holdfasthistory: the past holders (see [WithHistory]), at most as many as fit into the 8 KiB
//     that a blob's metadata may have
//
// A blob without them becomes a lock's with the first acquire of that name. All other metadata,
// such as a [Fence]'s, are kept. A blob whose record is damaged or has another version is never
// changed. An acquire with data is refused if the blob has contents and no record, or is an
// append or page blob, because its contents belong to another program. An acquire without data
// is granted and leaves them; after that the contents of a block blob are the lock's data.
//
// Nothing else should write or lease these blobs, and no lifecycle rule should delete them,
// since the last token is lost with the blob. A new blob's first token is the service's time,
// which has whole seconds. If a blob is deleted within a second of a grant, a token can be
// repeated or be lower. A program that may write the container can break any lease in it, so a
// lease ID in the metadata gives no further right; the driver itself never shows one.
//
// # The leader election pattern
//
// Azure's guidance for electing a leader by a blob's lease has five requirements.
//
//   - The task is cancelled when the lease cannot be renewed: the context of the hold, or of the
//     runner's task, ends a grace before the lease can end, even if a request hangs.
//   - The lease is released when the task ends: after it has returned or panicked, also if the
//     caller's context has ended.
//   - Followers retry at an interval: holdfast.WithPollInterval, jittered by a fifth. A runner
//     whose backend fails keeps trying.
//   - A leader that hangs but still renews is detected: holdfast.WithStallTimeout with
//     holdfast.Heartbeat, and holdfast.WithHealthCheck.
//   - Nothing else uses the lease blob: each lock has one of its own.
//
// # The emulator
//
// Azurite passes the same tests, with one difference: it renews an expired lease whatever ID the
// request has, where Azure compares the ID.
package azblob
