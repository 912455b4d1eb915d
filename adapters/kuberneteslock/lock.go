package kuberneteslock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast/driver"
)

// resource is what errors for client-go name. No API server has it.
var resource = schema.GroupResource{Group: "holdfast", Resource: "locks"}

// releaseLimit bounds the release of a lease that was granted but cannot be used.
const releaseLimit = 5 * time.Second

// Lock is a resourcelock.Interface. One elector at a time uses it. Token is safe for concurrent
// use with it.
type Lock struct {
	locker   driver.Locker
	data     driver.DataStore
	name     string
	identity string

	mu     sync.Mutex // guards the rest; never held across I/O
	lease  driver.Lease
	leads  bool           // lease is ours, as far as is known
	sent   time.Time      // just before the last successful acquire or renewal was sent
	failed bool           // the last renewal, for another reason than that the elector was stopped
	barred time.Duration  // after sent, in which a loss forbids to lead again
	asked  driver.LeaseID // of an acquire whose outcome is unknown
	seen   sighting
}

// sighting is what Get saw last.
type sighting struct {
	data     []byte          // compared by the next acquisition
	revision driver.Revision // of the holder
	ttl      time.Duration   // of the holder
	since    time.Time       // when the revision was first seen
}

var _ resourcelock.Interface = (*Lock)(nil)

// New makes a Lock. The name is that of the lock on the backend, and the identity that of this
// candidate, which must be unique. New sends nothing. The Locker belongs to the program, which
// closes it after the elector has returned. The error is an *[driver.InvalidError] if the backend
// does not allow the name or the identity, or stores no data with locks.
func New(locker driver.Locker, name, identity string) (*Lock, error) {
	if locker == nil {
		return nil, driver.Invalid("locker", "nil", "a Locker")
	}
	limits, data := locker.Info().Limits, locker.Capabilities().DataStore
	switch {
	case data == nil:
		return nil, driver.Invalid("locker", "of a backend that stores no data", "a backend with the capability DataStore")
	case identity == "":
		return nil, driver.Invalid("identity", "missing", "unique among the candidates")
	case limits.MaxOwner > 0 && len(identity) > limits.MaxOwner:
		return nil, driver.Invalid("identity", driver.Quote(identity), driver.ByteRange(1, limits.MaxOwner)+" long")
	}
	if err := driver.ValidateName(name, limits); err != nil {
		return nil, err
	}
	return &Lock{locker: locker, data: data, name: name, identity: identity}, nil
}

// Token returns the fencing token of this leader; 0 if it does not lead.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return 0
	}
	return l.lease.Token
}

// Identity returns the identity given to New.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the lock.
func (l *Lock) Describe() string { return "holdfast/" + l.name }

// RecordEvent does nothing: there is no object in the cluster to which an event could belong.
func (l *Lock) RecordEvent(string) {}

// Get returns the record, and bytes that differ if the lease was renewed since the last Get.
// Without a record the error satisfies apierrors.IsNotFound. After a renewal that failed it
// returns an error until the lease has expired or was renewed.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.renewFirst(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := l.untilExpiry(ctx)
	defer cancel()
	found, err := l.locker.Inspect(ctx, l.name)
	if err != nil {
		return nil, nil, err
	}
	if found.State == driver.StateFree && found.Token == 0 {
		l.see(driver.Record{})
		return nil, nil, apierrors.NewNotFound(resource, l.name)
	}
	record, err := l.stored(found.Data)
	if err != nil {
		return nil, nil, err
	}
	l.see(found)
	l.describe(&record, found)
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, err
	}
	return &record, append(raw, mark(found)...), nil
}

// renewFirst returns an error if the last renewal failed. Promise 1: an elector that gives up calls
// Get and releases the lease before it ends its leader's context. The error makes it end the
// context at once, and send no release, after which another could lead while the work still runs. An
// elector that still leads renews without Get. Once the lease has expired, the old elector has given up after
// this error, so the next Get is that of a new one.
func (l *Lock) renewFirst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads || !l.failed {
		return nil
	}
	l.failed = time.Since(l.sent) < l.lease.TTL
	return driver.Errorf("read %q: the last renewal of this leader failed, so it must renew first", l.name)
}

// untilExpiry limits a read after a loss to the time in which nobody else can lead, unless the lease
// was broken by force: client-go reads before it ends the leader's context.
func (l *Lock) untilExpiry(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.lease.TTL - time.Since(l.sent); l.barred > 0 && left > 0 {
		return context.WithTimeout(ctx, left)
	}
	return ctx, func() {}
}

// mark is what distinguishes one renewal from the next. The text of a revision is a secret.
func mark(found driver.Record) string {
	switch {
	case found.State == driver.StateFree:
		return strconv.FormatUint(found.Token, 10)
	case found.Revision.IsZero():
		// This backend (Azure) does not show renewals. It reports whether the lease has
		// ended, so there is nothing to observe.
		return string(uuid.NewUUID())
	}
	sum := sha256.Sum256([]byte(found.Revision.Mark()))
	return hex.EncodeToString(sum[:])
}

// see remembers what the next acquisition compares with.
func (l *Lock) see(found driver.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found.Revision != l.seen.revision {
		l.seen.since = time.Now()
	}
	l.seen.data, l.seen.revision, l.seen.ttl = found.Data, found.Revision, found.TTL
}

// stored reads the record that the last leader stored.
func (l *Lock) stored(data []byte) (record resourcelock.LeaderElectionRecord, err error) {
	if len(data) == 0 {
		return record, nil
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, driver.Errorf("the data of lock %q are not a leader's record, so another program uses this name: %w", l.name, err)
	}
	return record, nil
}

// describe corrects the stored record by what the backend says about the lease.
func (l *Lock) describe(record *resourcelock.LeaderElectionRecord, found driver.Record) {
	l.mu.Lock()
	mine, inDoubt := l.leads && found.Token == l.lease.Token, !l.asked.IsZero()
	l.mu.Unlock()
	if found.TTL > 0 {
		record.LeaseDurationSeconds = int(found.TTL / time.Second)
	}
	if !found.RenewedAt.IsZero() {
		record.RenewTime = metav1.NewTime(found.RenewedAt)
	}
	switch {
	case mine: // also if it expired: nobody has taken it since, so it can be renewed
		record.HolderIdentity = l.identity
	case found.State != driver.StateHeld:
		record.HolderIdentity = ""
	case found.Owner == l.identity && inDoubt:
		record.HolderIdentity = "" // this may be the lease that was asked for: ask again
	case found.Owner == l.identity:
		record.HolderIdentity = l.identity + " (another process)" // or the elector would believe that it leads
	case found.Owner == "":
		record.HolderIdentity = "unknown"
	default:
		record.HolderIdentity = found.Owner
	}
}

// Create acquires the lease of a lock that had no record.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.acquire(ctx, record)
}

// Update renews the lease if this candidate leads, releases it if the record has no holder, and
// otherwise acquires it. It changes only what the last Get showed, or else the error satisfies
// apierrors.IsConflict.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lease, leads := l.lease, l.leads
	l.mu.Unlock()
	switch {
	case leads && record.HolderIdentity == "":
		return l.release(ctx, lease)
	case leads:
		err := l.renew(ctx, lease)
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			l.fail()
		}
		return err
	case record.HolderIdentity == "":
		return nil // Promise 6: there is nothing to release; after a conflict the elector would ask again without a pause
	}
	return l.acquire(ctx, record)
}

// renew extends the lease.
func (l *Lock) renew(ctx context.Context, lease driver.Lease) error {
	sent := time.Now()
	limited, cancel := context.WithTimeout(ctx, answerLimit(lease.TTL))
	defer cancel()
	renewed, err := l.locker.Renew(limited, lease)
	switch {
	case err == nil && time.Since(sent) > answerLimit(lease.TTL):
		// Promise 2: the elector counts from the answer, so a late one would let it lead for
		// longer than the lease.
		return driver.Errorf("renew %q: the answer came after more than %s", l.name, driver.FormatDuration(answerLimit(lease.TTL)))
	case err == nil:
		lease.State = renewed.State
		l.lead(lease, sent)
		return nil
	case errors.Is(err, driver.ErrLost):
		l.lose()
		return l.conflict("the lease was lost")
	}
	return err // Promise 4: the elector asks again until its RenewDeadline
}

// answerLimit is how late the answer to a renewal may come.
func answerLimit(ttl time.Duration) time.Duration { return ttl / 6 }

// release ends the lease. If that fails, it ends one TTL after its last renewal, or when the release
// arrives late. Promise 1: so the lease is forgotten before the release is sent, and never renewed
// after it. The next acquisition has an ID of its own, which a late release does not end.
func (l *Lock) release(ctx context.Context, lease driver.Lease) error {
	l.mu.Lock()
	l.leads, l.asked = false, driver.LeaseID{}
	l.mu.Unlock()
	return l.locker.Release(ctx, lease)
}

// acquire takes the lease, unless somebody else led since the last Get.
func (l *Lock) acquire(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	request, err := l.request(record)
	if err != nil {
		return err
	}
	sent := time.Now()
	lease, err := l.locker.TryAcquire(ctx, request)
	switch {
	case errors.Is(err, driver.ErrHeld):
		l.forget()
		return l.conflict(err.Error())
	case driver.OutcomeKnown(err) && err != nil:
		l.forget()
		return err
	case errors.Is(err, driver.ErrIDReleased):
		l.forget()
		return err
	case err != nil:
		return err // Promise 5: the next attempt asks with the same ID, which is safe
	}
	if err := l.claim(ctx, lease, record); err != nil {
		// The caller's context may have ended. If this release fails too, the lease ends after
		// its TTL.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		_ = l.release(ctx, lease)
		return err
	}
	if late := time.Since(sent); late > answerLimit(lease.TTL) {
		// The lease must be renewed before the elector counts on it.
		l.lead(lease, sent)
		return l.renew(ctx, lease)
	}
	l.lead(lease, sent)
	return nil
}

// request asks with the ID of an earlier attempt whose outcome is unknown, or else with a new one.
func (l *Lock) request(record resourcelock.LeaderElectionRecord) (driver.Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.barred - time.Since(l.sent); left > 0 {
		return driver.Request{}, driver.Errorf("acquire %q: the lease was lost; this candidate may lead again in %s", l.name,
			driver.FormatDuration(left.Round(time.Millisecond)))
	}
	if record.LeaseDurationSeconds <= 0 {
		return driver.Request{}, driver.Invalid("LeaseDuration", "less than a second", "at least 1s: client-go cuts off fractions of a second")
	}
	if l.asked.IsZero() {
		l.asked = driver.NewLeaseID(string(uuid.NewUUID()))
	}
	request := driver.Request{Name: l.name, ID: l.asked, Owner: l.identity, TTL: time.Duration(record.LeaseDurationSeconds) * time.Second}
	if !l.seen.revision.IsZero() && l.seen.ttl > 0 && time.Since(l.seen.since) > l.seen.ttl {
		// Promise 10: the holder was not renewed for its whole TTL, so the backend's clock must
		// have stepped back.
		request.Replace = l.seen.revision
	}
	return request, nil
}

// claim stores the new leader's record if the stored one is still that which Get showed.
func (l *Lock) claim(ctx context.Context, lease driver.Lease, record resourcelock.LeaderElectionRecord) error {
	found, at, err := l.data.ReadData(ctx, l.name)
	if err != nil {
		return err
	}
	l.mu.Lock()
	same := bytes.Equal(found, l.seen.data)
	l.mu.Unlock()
	if !same {
		return l.conflict("another candidate led in between")
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	err = l.data.WriteData(ctx, lease, text, at)
	if errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrLost) {
		return l.conflict(err.Error())
	}
	return err
}

// lead notes a lease that was acquired or renewed.
func (l *Lock) lead(lease driver.Lease, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.leads, l.sent, l.failed, l.barred, l.asked = lease, true, sent, false, 0, driver.LeaseID{}
}

// fail notes that a renewal of a leader failed.
func (l *Lock) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = true
}

// lose notes that the lease is lost. An elector that leads stops within RetryPeriod +
// RenewDeadline, each of which is shorter than the TTL. Until then no answer may say that it
// leads again: nobody would notice the gap.
func (l *Lock) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads, l.barred = false, 2*l.lease.TTL
}

// forget ends the doubt about the last request. Its ID is not used again.
func (l *Lock) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = driver.LeaseID{}
}

// conflict is an error after which the elector reads the record again.
func (l *Lock) conflict(why string) error {
	return apierrors.NewConflict(resource, l.name, errors.New(why))
}
