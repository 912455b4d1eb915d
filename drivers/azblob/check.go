package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// What [Locker.Check] examines.
const (
	subjectCredential = "credential"
	subjectTransport  = "encryption"
	subjectService    = "service"
	subjectClock      = "this machine's clock"
	subjectContainer  = "container"
	subjectPublic     = "public access"
	subjectImmutable  = "immutability"
	subjectList       = "right to list"
	subjectRead       = "right to read"
	subjectCreate     = "right to create"
	subjectWrite      = "right to write"
	subjectDelete     = "right to delete"
	subjectForeign    = "foreign blobs"
	subjectTier       = "access tier"
	subjectSoftDelete = "soft delete"
	subjectVersioning = "versioning"
	subjectLifecycle  = "lifecycle rules"
)

// The service refuses requests whose signed time is 15 minutes away from its own.
const (
	doubtfulSkew = 30 * time.Second
	wrongSkew    = 10 * time.Minute
	soonExpired  = 7 * 24 * time.Hour
)

// origin is how a Locker that was opened by a URL reaches the service.
type origin struct {
	location
	kind string // of the credential
	clients
}

// checkup is one call of Check.
type checkup struct {
	driverutil.Report
	l      *Locker
	listed []*container.BlobItem // the first page
}

// Check implements [driver.Checker]. To learn the rights it sends requests that the service
// refuses in any case, because they name an ETag that no blob has.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	c := &checkup{l: l, Report: report}
	return driverutil.CheckSteps(ctx, backend, func() bool { return l.closing.Err() != nil },
		c.credential, c.list, c.container, c.rights, c.foreign, c.tier, c.softDelete, c.versioning, c.lifecycle)
}

// maxProbeWait is how long RemoveProbe waits for the service's clock. The token of a new record is from that
// clock, and a few grants increment it.
const maxProbeWait = 2 * time.Second

// RemoveProbe implements [driver.Checker]. The credential needs the right to delete.
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.do(ctx, op{verb: "remove", name: name, invalid: driver.ValidateName(name, limits)}, func(ctx context.Context) error {
		b := l.lockBlob(name, "")
		for {
			p, err := b.blob.BlobClient().GetProperties(l.withRetries(ctx, 0), nil)
			if hasCode(err, codesGone...) {
				return nil
			}
			if err != nil {
				return err
			}
			r, damage := parse(p.Metadata)
			free := damage == nil && describeState(name, r, blobLease{state: p.LeaseState}).State == driver.StateFree
			if !free || len(r.others) > 0 || p.ContentLength == nil || *p.ContentLength > 0 || p.Date == nil {
				return nil
			}
			now := uint64(max(p.Date.UnixMilli(), 0))
			if r.token < now {
				// Promise 1: the service refuses to delete a leased or changed blob.
				same := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: p.ETag}}
				_, err := b.blob.Delete(l.withRetries(ctx, 0), &blob.DeleteOptions{AccessConditions: same})
				if hasCode(err, bloberror.LeaseIDMissing, bloberror.ConditionNotMet) || hasCode(err, codesGone...) {
					return nil
				}
				return err
			}
			// Promise 3: the next token comes from the service's clock, which has whole seconds and
			// must have passed the last token. A record whose token is further ahead is kept.
			if r.token >= now+uint64(maxProbeWait.Milliseconds()) {
				return nil
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

func (c *checkup) run(ctx context.Context, requests func(context.Context) error) error {
	return c.l.run(ctx, op{verb: "check"}, requests)
}

func (c *checkup) unchecked(subject, detail, remedy, command string) {
	c.Report(driver.Finding{Subject: subject, Level: driver.LevelUnchecked, Detail: detail, Remedy: remedy, Command: command})
}

func (c *checkup) containerName() string { return c.l.containerName() }

// containerName is the last part of the container's address.
func (l *Locker) containerName() string {
	u, err := url.Parse(l.container.URL())
	if err != nil {
		return "the container"
	}
	return u.Path[strings.LastIndex(u.Path, "/")+1:]
}

// account returns the account's name, if the Locker was opened by a URL.
func (c *checkup) account() string {
	if c.l.origin == nil {
		return "ACCOUNT"
	}
	if name := c.l.origin.location.account; name != emulator {
		return name
	}
	return emulatorAccount
}

// credential examines the credential without a request.
func (c *checkup) credential(context.Context) bool {
	if u, err := url.Parse(c.l.container.URL()); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		c.Report(driver.Finding{Subject: subjectTransport, Level: driver.LevelDoubtful,
			Detail: "the endpoint is http: whoever is on the way reads the requests, and with a SAS or a token also the credential",
			Remedy: "Give an endpoint that begins with https."})
	} else {
		c.OK(subjectTransport, "the requests are encrypted, or stay on this machine")
	}
	if c.l.origin == nil {
		c.OK(subjectCredential, "that of the program's own client")
		return true
	}
	kind, sas := c.l.origin.kind, c.l.origin.sas
	if sas == nil {
		c.OK(subjectCredential, "%s", kind)
		return true
	}
	found := driver.Finding{Subject: subjectCredential, Detail: kind + " with the permissions " + driver.QuoteName(sas.Get("sp"))}
	const renew = "Make a new SAS with the permissions rcwl and a later expiry, or use a managed identity, which does not expire."
	ends, known := sasTime(sas.Get("se"))
	starts, hasStart := sasTime(sas.Get("st"))
	switch left := time.Until(ends); {
	case hasStart && time.Until(starts) > 0:
		found.Level = driver.LevelWrong
		found.Detail += "; it starts only at " + starts.Format(time.RFC3339)
		found.Remedy = "Wait until then, synchronize this machine's clock, or make a new SAS that starts earlier."
	case !known:
		found.Detail += "; its expiry is in a stored access policy, or missing"
	case left <= 0:
		found.Level, found.Remedy = driver.LevelWrong, renew
		found.Detail += "; it expired at " + ends.Format(time.RFC3339)
	case left < soonExpired:
		found.Level, found.Remedy = driver.LevelDoubtful, renew
		found.Detail += "; it expires soon, at " + ends.Format(time.RFC3339) + ": then no lock can be acquired or renewed"
	default:
		found.Detail += "; it expires at " + ends.Format(time.RFC3339)
	}
	c.Report(found)
	return found.Level != driver.LevelWrong
}

// sasTime parses a time in a SAS, which may be without the time of day.
func sasTime(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

func isLoopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// list reads the first page. Its answer shows whether the service, the credential and the container
// are right, and the service's clock.
func (c *checkup) list(ctx context.Context) bool {
	var answer *http.Response
	var begun time.Time
	var took time.Duration
	err := c.run(ctx, func(ctx context.Context) error {
		ctx = runtime.WithCaptureResponse(ctx, &answer)
		if _, err := c.l.nextPage(ctx, c.l.newPager(c.l.config.prefix+escape(driver.ProbeName))); hasCode(err,
			bloberror.AuthorizationPermissionMismatch) {
			return err // also makes the connection
		}
		begun = time.Now()
		page, err := c.l.nextPage(ctx, c.l.newPager(c.l.config.prefix))
		took = time.Since(begun)
		if err == nil {
			c.listed = page.Segment.BlobItems
		}
		return err
	})
	var refused *StorageError
	if err != nil && (!errors.As(err, &refused) || refused.ofProxy()) {
		c.Report(driver.Finding{Subject: subjectService, Level: driver.LevelWrong, Detail: plain(err),
			Remedy: "Check the account's name, the endpoint, DNS, proxies and firewalls on the way; for an identity also its login server."})
		return false
	}
	server := ""
	if answer != nil {
		server = answer.Header.Get("Server")
	}
	c.Of(server).OK(subjectService, "answered in %v", took.Round(100*time.Microsecond))
	c.clock(answer, begun, took)
	switch {
	case err == nil:
		c.OK(subjectList, "granted")
	case hasCode(err, bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled):
		c.Report(driver.Finding{Subject: subjectContainer, Level: driver.LevelWrong, Detail: plain(err),
			Remedy:  "Create the container, or correct its name in the URL. (The first acquire creates it if the credential may.)",
			Command: fmt.Sprintf("az storage container create --account-name %s --name %s", c.account(), c.containerName())})
		return false
	case isRefusal(err):
		c.missingRight(subjectList, "l", "locks cannot be listed, and waiters for many names ask for each", driver.LevelDoubtful, err)
	default:
		c.Report(driver.Finding{Subject: subjectCredential, Level: driver.LevelWrong, Detail: plain(err),
			Remedy: "Correct the credential: it must belong to the account, must not have expired, and this machine's clock must be right; the " +
				"account's network rules must admit this machine."})
		return false
	}
	return true
}

// plain is an error's text without the service's advice: the finding has a remedy.
func plain(err error) string {
	var answer *StorageError
	if errors.As(err, &answer) {
		return fmt.Sprintf("the service answered %d %s (request %s)", answer.Status, answer.Code, answer.RequestID)
	}
	return driver.ErrorText(err)
}

// isRefusal reports whether the service knows the credential and refuses the operation.
func isRefusal(err error) bool {
	return hasCode(err, bloberror.AuthorizationPermissionMismatch, bloberror.InsufficientAccountPermissions,
		bloberror.AuthorizationServiceMismatch, bloberror.AuthorizationResourceTypeMismatch)
}

// clock compares this machine's clock with the service's, which has whole seconds.
func (c *checkup) clock(answer *http.Response, begun time.Time, took time.Duration) {
	if answer == nil {
		return
	}
	theirs, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return
	}
	off := begun.Add(took / 2).Sub(theirs.Add(500 * time.Millisecond)).Round(time.Second)
	found := driver.Finding{Subject: subjectClock,
		Detail: fmt.Sprintf("within a second of the service's, as far as its whole seconds show (%v)", off)}
	switch size := off.Abs(); {
	case size >= wrongSkew:
		found.Level = driver.LevelWrong
	case size >= doubtfulSkew:
		found.Level = driver.LevelDoubtful
	}
	if found.Level != driver.LevelOK {
		found.Detail = fmt.Sprintf("%v away from the service's: the service judges leases, but refuses requests that are signed 15m or more "+
			"away from its own time", off)
		found.Remedy = "Synchronize this machine's clock (chrony, systemd-timesyncd)."
	}
	c.Report(found)
}

// foreign looks for blobs of other programs among those of the first page.
func (c *checkup) foreign(context.Context) bool {
	example, n := "", 0
	for _, item := range c.listed {
		if item.Name != nil && len(c.l.appendLock(nil, item)) == 0 {
			if n++; n == 1 {
				example = *item.Name
			}
		}
	}
	if n > 0 {
		c.Report(driver.Finding{Subject: subjectForeign, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("%d of the first %d blobs are no lock's, such as %s: another program may delete or overwrite locks here", n,
				len(c.listed), driver.Quote(example)),
			Remedy: "Give the locks a container of their own, or a folder: azblob://ACCOUNT/CONTAINER/FOLDER, in all programs at the same time."})
		return true
	}
	c.OK(subjectForeign, "none among the first %d blobs", len(c.listed))
	return true
}

// tier looks for locks among the blobs of the first page that cannot be read or written.
func (c *checkup) tier(context.Context) bool {
	example, n := "", 0
	for _, item := range c.listed {
		p := item.Properties
		archived := p != nil && p.AccessTier != nil && *p.AccessTier == container.AccessTierArchive
		if archived && len(c.l.appendLock(nil, item)) > 0 {
			if n++; n == 1 {
				example = *item.Name
			}
		}
	}
	if n > 0 {
		c.Report(driver.Finding{Subject: subjectTier, Level: driver.LevelWrong,
			Detail: fmt.Sprintf("%d of the first %d blobs are locks in the archive tier, such as %s: the service refuses to read their data and to "+
				"write their records", n, len(c.listed), driver.Quote(example)),
			Remedy: "Except the locks from the lifecycle rule that archives blobs, and move them back, which takes hours. With Azure's command:",
			Command: fmt.Sprintf("az storage blob set-tier --account-name %s --container-name %s --tier Hot --name BLOB", c.account(),
				c.containerName())})
		return true
	}
	c.OK(subjectTier, "no lock among the first %d blobs is archived", len(c.listed))
	return true
}

// softDelete reads the account's settings, for which the right to the container is not enough.
func (c *checkup) softDelete(ctx context.Context) bool {
	show := fmt.Sprintf("az storage account blob-service-properties show --account-name %s", c.account())
	const elsewhere = "Look at it with another credential:"
	if c.l.origin == nil {
		c.unchecked(subjectSoftDelete, "the program's own client reaches the container only", elsewhere, show)
		return true
	}
	var p service.GetPropertiesResponse
	err := c.run(ctx, func(ctx context.Context) (err error) {
		p, err = c.l.origin.clients.account.GetProperties(c.l.withRetries(ctx, 0), nil)
		return err
	})
	switch policy := p.DeleteRetentionPolicy; {
	case err != nil:
		c.unchecked(subjectSoftDelete, "the credential may not read the account's settings: "+plain(err), elsewhere, show)
	case policy != nil && policy.Enabled != nil && *policy.Enabled:
		days := int32(0)
		if policy.Days != nil {
			days = *policy.Days
		}
		c.OK(subjectSoftDelete, "on: deleted blobs are kept and billed for %d days; do not restore the blob of a lock that is in use", days)
	default:
		c.OK(subjectSoftDelete, "off")
	}
	return true
}

// versioning asks whether a blob that was written has a version.
func (c *checkup) versioning(ctx context.Context) bool {
	show := fmt.Sprintf("az storage account blob-service-properties show --account-name %s --query isVersioningEnabled", c.account())
	if len(c.listed) == 0 || c.listed[0].Name == nil {
		c.unchecked(subjectVersioning, "only a blob shows it, and there is none yet", "Check again when there are locks, or:", show)
		return true
	}
	var p blob.GetPropertiesResponse
	err := c.run(ctx, func(ctx context.Context) (err error) {
		p, err = c.l.container.NewBlobClient(*c.listed[0].Name).GetProperties(c.l.withRetries(ctx, 0), nil)
		return err
	})
	switch {
	case err != nil:
		c.unchecked(subjectVersioning, plain(err), "Look at it with another credential:", show)
	case p.VersionID != nil && *p.VersionID != "":
		c.Report(driver.Finding{Subject: subjectVersioning, Level: driver.LevelDoubtful,
			Detail: "on: every grant and every write of data leaves a version of the blob, which is kept and billed",
			Remedy: "Keep the locks in an account without versioning, or add a lifecycle rule that deletes old versions only. To turn it off for " +
				"the account:",
			Command: fmt.Sprintf("az storage account blob-service-properties update --account-name %s --enable-versioning false",
				c.account())})
	default:
		c.OK(subjectVersioning, "off when the blob %s was written", driver.Quote(*c.listed[0].Name))
	}
	return true
}

// lifecycle says what the data plane does not show.
func (c *checkup) lifecycle(context.Context) bool {
	if c.account() == emulatorAccount {
		c.OK(subjectLifecycle, "the emulator has none")
		return true
	}
	c.unchecked(subjectLifecycle, "they belong to the management of the account, which a credential for blobs does not reach: a rule that "+
		"deletes or archives blobs by age does that to locks, too; their last tokens are then lost, or their records cannot be written",
		"Make sure that no rule deletes or archives base blobs of this container:",
		fmt.Sprintf("az storage account management-policy show --account-name %s --resource-group GROUP", c.account()))
	return true
}
