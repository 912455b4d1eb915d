// Package doctor examines a backend: whether it is set up so that locks in it are safe and quick.
// It is the mechanism of "holdfast doctor". What a driver knows of its backend is in the driver
// ([driver.Checker]); what applies to every backend is here.
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/settings"
)

// What is examined of every backend.
const (
	subjectOpen    = "opening"
	subjectChecks  = "the driver's checks"
	subjectProbe   = "probe lock"
	subjectAcquire = "latency of acquire"
	subjectRenew   = "latency of renew"
	subjectInspect = "latency of inspect"
	subjectRelease = "latency of release"
	subjectRemoval = "removal of the probe"
	subjectClock   = "clock of the backend"
	subjectRecords = "records"
	subjectLeases  = "leases"

	subjectExpiry   = "end of leases"
	subjectFailover = "fail-over"
	subjectFree     = "free locks"
)

const (
	// slow is the latency above which a call is doubtful: a renewal has a third of the TTL for
	// itself and its repeats.
	slow = time.Second
	// clockDifference is how far this machine's clock may be from the backend's. Leases do not
	// depend on it; people compare times.
	clockDifference = 5 * time.Second
	// probeTTL is shortened and extended to what the backend allows. It is short, so that a probe
	// that cannot be released is gone soon.
	probeTTL = 15 * time.Second
	// contended is how long another's probe is waited for.
	contended = 20 * time.Second
	// cleanupTimeout bounds the release and the removal of the probe, also after an interruption.
	cleanupTimeout = 10 * time.Second
	// mostRecords is how many records are read.
	mostRecords = 1000
)

// Run examines the backend of a URL. The error says that the URL, or a credential beside it, is not
// valid (it matches [driver.ErrInvalid]), or that ctx has ended: the report then is incomplete. All
// else that goes wrong is a finding.
func Run(ctx context.Context, rawURL string) (*Report, error) {
	l, err := driver.OpenForCheck(ctx, rawURL)
	switch {
	case ctx.Err() != nil:
		return &Report{}, ctx.Err()
	case errors.Is(err, driver.ErrInvalid):
		return nil, err
	case err != nil:
		r := &Report{}
		r.add(driver.Finding{Subject: subjectOpen, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
			Remedy: "Correct what the message names, and check again."})
		return r, nil
	}
	defer func() { _ = l.Close(context.WithoutCancel(ctx)) }()
	return Examine(ctx, l)
}

// Examine examines the backend of a Locker from [driver.OpenForCheck]. The error is that of ctx.
func Examine(ctx context.Context, l driver.Locker) (*Report, error) {
	r := &Report{}
	checker := l.Capabilities().Checker
	if checker == nil {
		r.add(driver.Finding{Subject: subjectChecks, Level: driver.LevelUnchecked, Detail: "the driver has none of its own"})
	} else if err := checker.Check(ctx, r.add); err != nil && ctx.Err() == nil {
		r.add(driver.Finding{Subject: subjectChecks, Level: driver.LevelWrong, Detail: driver.ErrorText(err), Remedy: "Check again."})
	}
	r.promises(l.Info()) // a driver may find out by its checks what it can promise
	if ctx.Err() == nil && r.Verdict() != driver.LevelWrong {
		if err := driver.CheckWrites(ctx, l, r.add); err != nil && ctx.Err() == nil {
			r.add(driver.Finding{Subject: subjectChecks, Level: driver.LevelWrong, Detail: driver.ErrorText(err), Remedy: "Check again."})
		}
	}
	missing := ctx.Err() == nil && r.examineRecords(ctx, l)
	switch {
	case ctx.Err() != nil:
	case r.Verdict() == driver.LevelWrong:
		r.add(driver.Finding{Subject: subjectProbe, Level: driver.LevelUnchecked, Detail: "no lock was taken, because of what is WRONG below"})
	case missing:
		r.add(driver.Finding{Subject: subjectProbe, Level: driver.LevelUnchecked, Detail: "no lock was taken, because the folder does not exist"})
	default:
		r.probe(ctx, l)
	}
	r.sort()
	return r, ctx.Err()
}

// probe takes the probe lock, renews, reads and releases it, and removes its record.
func (r *Report) probe(ctx context.Context, l driver.Locker) {
	ttl := settings.ClampTTL(probeTTL, l.Info().Limits)
	req := driver.Request{Name: driver.ProbeName, ID: driver.NewLeaseID(newID()), Owner: "holdfast doctor", TTL: ttl}
	begun := time.Now()
	lease, took, err := r.acquire(ctx, l, req)
	if errors.Is(err, driver.ErrDenied) { // nothing was applied
		if missing, lookErr := driver.MissingStore(ctx, l); lookErr == nil && missing != "" {
			r.add(driver.Finding{Subject: subjectProbe, Level: driver.LevelUnchecked,
				Detail: "no lock was taken, because " + missing + " does not exist yet", Remedy: "Check again when a program has used the locks."})
			return
		}
	}
	if !errors.Is(err, driver.ErrHeld) { // whatever happened, the request may have been applied
		defer r.removeProbe(ctx, l, driver.Lease{Name: req.Name, ID: req.ID, TTL: ttl})
	}
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, driver.ErrHeld):
		r.add(driver.Finding{Subject: subjectProbe, Level: driver.LevelUnchecked,
			Detail: "another check holds it: " + driver.ErrorText(err), Remedy: "Check again later."})
		return
	case err != nil:
		r.add(driver.Finding{Subject: subjectProbe, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
			Remedy: "Correct what the message names, and check again."})
		return
	}
	r.add(driver.Finding{Subject: subjectProbe, Detail: fmt.Sprintf("%s was granted with token %d", driver.Quote(lease.Name), lease.Token)})
	r.latency(subjectAcquire, took)

	var seen driver.Record
	for _, step := range []struct {
		subject string
		call    func() error
	}{
		{subjectRenew, func() (err error) { lease, err = l.Renew(ctx, lease); return err }},
		{subjectInspect, func() (err error) { seen, err = l.Inspect(ctx, lease.Name); return err }},
		{subjectRelease, func() error { return l.Release(ctx, lease) }},
	} {
		began := time.Now()
		err := step.call()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.add(driver.Finding{Subject: step.subject, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
				Remedy: "Correct what the message names, and check again."})
		default:
			r.latency(step.subject, time.Since(began))
		}
	}
	r.clock(seen, begun)
}

// acquire waits until no other check holds the probe lock, and takes it.
func (r *Report) acquire(ctx context.Context, l driver.Locker, req driver.Request) (lease driver.Lease, took time.Duration, err error) {
	for deadline := time.Now().Add(contended); ; {
		begun := time.Now()
		lease, err = l.TryAcquire(ctx, req)
		took = time.Since(begun)
		if !errors.Is(err, driver.ErrHeld) || time.Now().After(deadline) {
			return lease, took, err
		}
		select {
		case <-time.After(max(l.Info().Limits.Poll/5, 100*time.Millisecond)):
		case <-ctx.Done():
			return lease, took, ctx.Err()
		}
	}
}

// newID returns a random UUID, version 4, as every backend accepts.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (r *Report) latency(subject string, took time.Duration) {
	found := driver.Finding{Subject: subject, Detail: shortDuration(took)}
	if took > slow {
		found.Level = driver.LevelDoubtful
		found.Detail += ": renewals may come too late if that goes on"
		found.Remedy = "Look for a slow network, disk or server, run the program nearer to it, or choose a longer TTL."
	}
	r.add(found)
}

// shortDuration rounds a latency to what a person compares.
func shortDuration(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

// clock compares the time of the grant by the backend's clock with this machine's.
func (r *Report) clock(seen driver.Record, begun time.Time) {
	if seen.AcquiredAt.IsZero() {
		r.add(driver.Finding{Subject: subjectClock, Level: driver.LevelUnchecked, Detail: "the backend does not show it"})
		return
	}
	now := time.Now()
	const step = time.Second // some backends have whole seconds
	var off time.Duration
	switch {
	case seen.AcquiredAt.Before(begun.Add(-step)):
		off = seen.AcquiredAt.Sub(begun)
	case seen.AcquiredAt.After(now.Add(step)):
		off = seen.AcquiredAt.Sub(now)
	}
	found := driver.Finding{Subject: subjectClock, Detail: "within a second of this machine's"}
	if off != 0 {
		found.Detail = fmt.Sprintf("%v away from this machine's; leases do not depend on that", off.Round(10*time.Millisecond))
	}
	if off.Abs() > clockDifference {
		found.Level = driver.LevelDoubtful
		found.Remedy = "Synchronize both clocks (chrony, systemd-timesyncd), so that times in logs and records can be compared."
	}
	r.add(found)
}

// removeProbe releases the probe lock and removes its record, also after an interruption.
func (r *Report) removeProbe(ctx context.Context, l driver.Locker, lease driver.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := l.Release(ctx, lease)
	if checker := l.Capabilities().Checker; err == nil && checker != nil {
		err = checker.RemoveProbe(ctx, lease.Name)
	}
	switch {
	case err != nil:
		r.add(driver.Finding{Subject: subjectRemoval, Level: driver.LevelUnchecked,
			Detail: fmt.Sprintf("the record of the free lock %s stays: %s", driver.Quote(lease.Name), driver.ErrorText(err)),
			Remedy: "It does no harm. With the right to delete, it would be removed."})
	case l.Capabilities().Checker == nil:
		r.add(driver.Finding{Subject: subjectRemoval, Level: driver.LevelUnchecked,
			Detail: "the driver does not remove records; that of the free lock " + driver.Quote(lease.Name) + " stays"})
	default:
		r.add(driver.Finding{Subject: subjectRemoval, Detail: "the lock was released and its record removed"})
	}
}

// examineRecords reads the records of all locks. It reports whether their folder is missing, which the
// driver's checks have found.
func (r *Report) examineRecords(ctx context.Context, l driver.Locker) (missing bool) {
	lister := l.Capabilities().Lister
	if lister == nil {
		r.add(driver.Finding{Subject: subjectRecords, Level: driver.LevelUnchecked, Detail: "the backend cannot list them"})
		return false
	}
	var damaged, late, endless []string
	var failed error
	read, held, timed := 0, 0, 0
	for record, err := range lister.List(ctx, "") {
		switch {
		case err != nil && record.Name == "":
			failed = err
		case err != nil:
			damaged = append(damaged, driver.ErrorText(err))
		case record.Name == driver.ProbeName:
			continue
		}
		if record.State == driver.StateHeld {
			held++
			if record.RemainingKnown {
				timed++
			}
			if why := nearlyLost(record); why != "" {
				late = append(late, why)
			}
			if record.Endless {
				endless = append(endless, driver.Quote(record.Name)+ownedBy(record))
			}
		}
		if read++; read == mostRecords {
			break
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(failed, fs.ErrNotExist) {
		return true
	}
	if failed != nil {
		if r.Verdict() != driver.LevelWrong { // otherwise the reason is known
			r.add(driver.Finding{Subject: subjectRecords, Level: driver.LevelWrong, Detail: driver.ErrorText(failed),
				Remedy: "Correct what the message names, and check again."})
		}
		return false
	}
	limited := ""
	if read == mostRecords {
		limited = "the first "
	}
	if len(damaged) > 0 {
		r.add(driver.Finding{Subject: subjectRecords, Level: driver.LevelWrong,
			Detail: fmt.Sprintf("%d of %s%d cannot be read, and their locks not be acquired: %s", len(damaged), limited, read, few(damaged)),
			Remedy: "Restore them, or delete them when nobody holds those locks; look for the program that wrote there."})
	} else {
		r.add(driver.Finding{Subject: subjectRecords, Detail: fmt.Sprintf("%s%d, all readable", limited, read)})
	}
	if len(endless) > 0 {
		r.add(driver.Finding{Subject: subjectLeases, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("%d of %d held locks have a lease that never ends: nobody else gets them: %s", len(endless), held, few(endless)),
			Remedy: "Holdfast takes no lease without an end; find out which program or person did, and stop that. Then release the lease, or free " +
				"the lock by \"holdfast break NAME\" with --unknown, or with --token if the token is known."})
	}
	switch {
	case len(late) > 0:
		r.add(driver.Finding{Subject: subjectLeases, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("%d of %d held locks are about to be lost: %s", len(late), held, few(late)),
			Remedy: "See whether the owners run and reach the backend. A lock whose holder has crashed is free as soon as its lease expires."})
	case len(endless) > 0:
	case held > 0 && timed == 0:
		r.add(driver.Finding{Subject: subjectLeases, Level: driver.LevelUnchecked,
			Detail: fmt.Sprintf("%d held; the backend does not show how much time they have left", held)})
	default:
		r.add(driver.Finding{Subject: subjectLeases, Detail: fmt.Sprintf("%d held, none about to be lost", held)})
	}
	return false
}

// nearlyLost describes a lock that was not renewed in time: its holder has given it up, a sixth of
// the TTL before the expiry, or is about to.
func nearlyLost(r driver.Record) string {
	if !r.RemainingKnown || r.TTL == 0 || r.Broken || r.Remaining > r.TTL/6 {
		return ""
	}
	return fmt.Sprintf("%s%s has %s left of %s", driver.Quote(r.Name), ownedBy(r),
		driver.FormatDuration(max(r.Remaining, 0).Round(100*time.Millisecond)), driver.FormatDuration(r.TTL))
}

// ownedBy is the owner, as it follows the lock's name.
func ownedBy(r driver.Record) string {
	if r.Owner == "" {
		return ""
	}
	return " of " + driver.Quote(r.Owner)
}

// few joins the first texts.
func few(texts []string) string {
	const most = 3
	if len(texts) > most {
		return strings.Join(texts[:most], "; ") + fmt.Sprintf("; and %d more", len(texts)-most)
	}
	return strings.Join(texts, "; ")
}

// Report is what was found.
type Report struct {
	Findings []driver.Finding
}

func (r *Report) add(f driver.Finding) { r.Findings = append(r.Findings, f) }

// Verdict is the worst level of all findings.
func (r *Report) Verdict() driver.Level {
	worst := driver.LevelOK
	for _, f := range r.Findings {
		// What was not checked says nothing of the backend.
		if f.Level != driver.LevelUnchecked {
			worst = max(worst, f.Level)
		}
	}
	return worst
}

// sort puts the worst last, where a terminal shows it.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b driver.Finding) int { return int(a.Level) - int(b.Level) })
}
