package azblob

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/holdfast-go/holdfast/driver"
)

// StorageError is an unexpected answer of the service. It replaces the SDK's
// *azcore.ResponseError, whose text quotes the service's: if a signature does not match, the
// service repeats the request's headers with the lease ID and the signature.
type StorageError struct {
	Status    int    // the HTTP status
	Code      string // such as "ServerBusy"; may be empty
	RequestID string // for Azure's support; may be empty
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
	switch bloberror.Code(e.Code) {
	case bloberror.AuthorizationPermissionMismatch:
		text += "; the identity needs the role Storage Blob Data Contributor on the container, a SAS the permissions rcwl"
	case bloberror.AuthorizationFailure:
		text += "; check the credential, its permissions and the account's network rules"
	case bloberror.AuthenticationFailed, bloberror.NoAuthenticationInformation, bloberror.InvalidAuthenticationInfo:
		text += "; check whether the credential is right, has not expired, and belongs to the account"
	case bloberror.OutOfRangeInput, bloberror.InvalidURI:
		text += adviceOnAddress
	case bloberror.ContainerNotFound:
		text += "; create the container, or correct its name"
	}
	return text
}

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
		}
		return e
	}
	var request *url.Error
	if errors.As(err, &request) {
		return redact(request.Err)
	}
	return withoutChain(err)
}

var errNoCredential = errors.New("no credential for Azure was found that works: set " + envConnectionString + ", " + envKey + " or " +
	envSAS +
	", run \"az login\", or give this machine a managed identity or workload identity")

// refusedCredential finds the credentials of a chain that were refused, and Microsoft Entra's code of the reason.
var refusedCredential = regexp.MustCompile(`\w+Credential authentication failed|AADSTS\d+`)

// withoutChain shortens the error of azidentity's default chain, which lists in dozens of lines all that was tried. A machine
// outside of Azure can have a service at the address of managed identities that refuses the request.
func withoutChain(err error) error {
	if !strings.HasPrefix(err.Error(), "DefaultAzureCredential: failed to acquire a token") {
		return err
	}
	found := refusedCredential.FindAllString(err.Error(), -1)
	if len(found) == 0 {
		return errNoCredential
	}
	return fmt.Errorf("%w (%s)", errNoCredential, strings.Join(slices.Compact(found), ", "))
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
	// codesExist: another process created the blob or container first. For a leased blob the
	// service reports the lease before it reports that the blob exists.
	codesExist = []bloberror.Code{bloberror.BlobAlreadyExists, bloberror.ContainerAlreadyExists, bloberror.ConditionNotMet,
		bloberror.LeaseIDMissing}
)

// denied marks an error of a request that the service refused for want of a right or a credential. The
// caller makes sure that no earlier request of its operation changed anything.
func denied(err error) error {
	var answer *StorageError
	if errors.As(redact(err), &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden) {
		return driver.Denied(redact(err))
	}
	return err
}

// hasCode is bloberror.HasCode, also for redacted errors.
func hasCode(err error, codes ...bloberror.Code) bool {
	var cleaned *StorageError
	if errors.As(err, &cleaned) {
		return slices.Contains(codes, bloberror.Code(cleaned.Code))
	}
	return bloberror.HasCode(err, codes...)
}
