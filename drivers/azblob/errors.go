package azblob

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
)

// StorageError is an unexpected answer of the service. It replaces the SDK's
// *azcore.ResponseError, whose text quotes the service's: if a signature does not match, the
// service repeats the request's headers with the lease ID and the signature.
type StorageError struct {
	Status    int    // the HTTP status; 203 if another server answered with a success
	Code      string // such as "ServerBusy"; may be empty
	RequestID string // for Azure's support; may be empty

	clockOff time.Duration // this machine's clock less the service's, if the answer has that
	ofSAS    string        // what is known of the SAS that was refused
}

const adviceOnAddress = "; check the container's name, and that the endpoint of an emulator ends with the account, such as " +
	"http://HOST:10000/" + emulatorAccount

// Error has the code and, for some codes, what to do.
func (e *StorageError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("the service answered %d %s", e.Status, e.Code))
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	if e.Status == http.StatusBadRequest && e.Code == "" { // the answer to HEAD may have no code
		text += adviceOnAddress
	}
	if e.ofProxy() && (e.Status < http.StatusBadRequest || e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		text += "; the answer is not that of Azure: is there another server between this program and the service?"
	}
	switch bloberror.Code(e.Code) {
	case bloberror.AuthorizationPermissionMismatch:
		text += "; the identity needs the role Storage Blob Data Contributor on the container, a SAS the permissions rcwl"
	case bloberror.AuthorizationFailure:
		text += "; check the credential, its permissions and the account's network rules"
	case bloberror.AuthenticationFailed, bloberror.NoAuthenticationInformation, bloberror.InvalidAuthenticationInfo:
		text += "; check whether the credential is right, has started and not expired, and belongs to the account, and this machine's clock"
	case keyNotPermitted:
		text += "; the account permits no shared key, and no SAS that is signed with one: use an identity (without " + envConnectionString +
			", " + envKey + " and " + envSAS + "), or permit keys in the account's settings"
	case bloberror.BlobImmutableDueToPolicy:
		text += "; a legal hold or an immutability policy keeps the blob as it is: keep the locks in a container of their own, without them"
	case bloberror.BlobArchived:
		text += "; the blob is in the archive tier: move it back by \"az storage blob set-tier --tier Hot\", which takes hours, and except " +
			"the locks from the lifecycle rule that archives blobs"
	case bloberror.BlobBeingRehydrated:
		text += "; the blob is being moved back from the archive tier, which takes hours"
	case bloberror.OutOfRangeInput, bloberror.InvalidURI:
		text += adviceOnAddress
	case bloberror.ContainerNotFound:
		text += "; create the container, or correct its name"
	}
	if off := e.clockOff.Round(time.Second); off.Abs() >= wrongSkew && e.refusesCredential() {
		side := "ahead of"
		if off < 0 {
			side = "behind"
		}
		text += fmt.Sprintf("; this machine's clock is %s %s the service's", driver.FormatDuration(off.Abs()), side)
	}
	return text + e.ofSAS
}

// refusesCredential reports whether the service did not accept the request's credential. A proxy may refuse a request, too, or answer
// so in place of a service that has done what was asked. The service's own answers have a code and an ID.
func (e *StorageError) refusesCredential() bool {
	return (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) && !e.ofProxy()
}

// ofProxy reports whether the answer is not the service's, which redirects nobody, and whose successes are no errors. A 304 answers a
// program's own request with a condition.
func (e *StorageError) ofProxy() bool {
	return e.Status < http.StatusBadRequest && e.Status != http.StatusNotModified || e.Code == "" && e.RequestID == ""
}

// keyNotPermitted is a code that the SDK does not name.
const keyNotPermitted bloberror.Code = "KeyBasedAuthenticationNotPermitted"

// Redact returns an error of the SDK without the secrets that its text may have: the service's
// answer becomes a *[StorageError], and the URL is left out.
func Redact(err error) error { return redact(err) }

// redact removes secrets from an error of the SDK: the service's text, and the URL, which may
// have a SAS.
func redact(err error) error {
	if err == nil {
		return nil
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		e := &StorageError{Status: answer.StatusCode, Code: answer.ErrorCode}
		if answer.RawResponse != nil {
			e.RequestID = answer.RawResponse.Header.Get("x-ms-request-id")
			if theirs, err := http.ParseTime(answer.RawResponse.Header.Get("Date")); err == nil {
				e.clockOff = time.Since(theirs)
			}
		}
		return e
	}
	var request *url.Error
	if errors.As(err, &request) {
		var dial *net.OpError
		if cause := redact(request.Err); strings.Contains(request.URL, "/"+emulatorAccount+"/") && errors.As(cause, &dial) && dial.Op == "dial" {
			return fmt.Errorf("%w; does Azurite run there? Start it, or correct the URL parameter "+paramEndpoint, cause)
		}
		return redact(request.Err)
	}
	return withoutLogin(err)
}

// Answers are classified by code, since the same fact has status 409 in one request and 412 in
// another. https://learn.microsoft.com/rest/api/storageservices/lease-blob
var (
	// codesGone: there is no blob, so nobody holds its lease.
	codesGone = []bloberror.Code{bloberror.BlobNotFound, bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted}
	// codesLost: the lease does not have the ID that was sent.
	codesLost = append([]bloberror.Code{
		bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseNotPresentWithLeaseOperation,
		bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseNotPresentWithBlobOperation,
		bloberror.LeaseIsBrokenAndCannotBeRenewed, bloberror.LeaseLost,
	}, codesGone...)
	// codesUntilChanged: the service refuses the request until a person changes something.
	codesUntilChanged = []bloberror.Code{bloberror.BlobArchived, bloberror.BlobImmutableDueToPolicy}
	// codesExist: another process created the blob or container first. For a leased blob the
	// service reports the lease before it reports that the blob exists.
	codesExist = []bloberror.Code{bloberror.BlobAlreadyExists, bloberror.ContainerAlreadyExists, bloberror.ConditionNotMet,
		bloberror.LeaseIDMissing}
)

// denied marks an error of a request that the service refused for want of a right or a credential, or because of the
// blob's tier or policy, or that was not sent because no credential has ever worked. The caller makes sure that no earlier request of its
// operation changed anything.
func (l *Locker) denied(ctx context.Context, err error) error {
	cleaned := redact(err)
	var answer *StorageError
	switch {
	case errors.As(cleaned, &answer) && (answer.refusesCredential() || hasCode(answer, codesUntilChanged...)):
		return driver.Denied(cleaned)
	case isMissing(cleaned) && l.hadToken.Load(): // most likely it comes back
		return fmt.Errorf("%w, although it has worked before: %w", errLoginFailed, cleaned)
	case errors.Is(cleaned, errNoCredential) && ctx.Err() == nil && l.inTime(ctx): // a credential that is cut off seems to be missing
		return driver.Denied(cleaned)
	}
	return err
}

// inTime reports whether the present operation has taken less time than one request may, so that no login was cut off. Those of Open's
// credentials are not cut off with a request.
func (l *Locker) inTime(ctx context.Context) bool {
	if l.origin != nil && l.origin.tokens != nil {
		return true
	}
	sent, ok := ctx.Value(triesKey{}).(*tries)
	return ok && time.Since(sent.began) < l.config.requestTimeout
}

// addSAS says of a SAS that was refused when it starts or ends, by this machine's clock.
func (l *Locker) addSAS(err error) {
	var answer *StorageError
	if !errors.As(err, &answer) || !answer.refusesCredential() {
		return
	}
	u, parseErr := url.Parse(l.container.URL()) // a SAS is a part of it, also in the program's own client
	if parseErr != nil {
		return
	}
	kind := "SAS"
	if l.origin != nil {
		kind = l.origin.kind
	}
	starts, hasStart := sasTime(u.Query().Get("st"))
	ends, hasEnd := sasTime(u.Query().Get("se"))
	switch now := time.Now(); {
	case hasEnd && !now.Before(ends):
		answer.ofSAS = fmt.Sprintf("; the %s expired at %s", kind, ends.Format(time.RFC3339))
	case hasStart && now.Before(starts):
		answer.ofSAS = fmt.Sprintf("; the %s starts only at %s", kind, starts.Format(time.RFC3339))
	case hasEnd:
		answer.ofSAS = fmt.Sprintf("; the %s ends at %s", kind, ends.Format(time.RFC3339))
	}
}

// hasCode is bloberror.HasCode, also for redacted errors.
func hasCode(err error, codes ...bloberror.Code) bool {
	var cleaned *StorageError
	if errors.As(err, &cleaned) {
		return slices.Contains(codes, bloberror.Code(cleaned.Code))
	}
	return bloberror.HasCode(err, codes...)
}
