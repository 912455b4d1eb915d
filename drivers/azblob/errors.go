package azblob

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// StorageError is an unexpected answer of the service. It replaces the SDK's
// *azcore.ResponseError, whose text quotes the service's: if a signature does not match, the
// service repeats the request's headers with the lease ID and the signature.
type StorageError struct {
	Status    int    // the HTTP status
	Code      string // such as "ServerBusy"; may be empty
	RequestID string // for Azure's support; may be empty
}

// Error has the code and, for some codes, what to do.
func (e *StorageError) Error() string {
	text := fmt.Sprintf("the service answered %d %s", e.Status, e.Code)
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	switch bloberror.Code(e.Code) {
	case bloberror.AuthorizationPermissionMismatch:
		text += "; the identity needs the role Storage Blob Data Contributor on the container, a SAS the permissions rcwl"
	case bloberror.AuthorizationFailure:
		text += "; check the credential, its permissions and the account's network rules"
	case bloberror.AuthenticationFailed, bloberror.NoAuthenticationInformation, bloberror.InvalidAuthenticationInfo:
		text += "; check whether the credential is right, has not expired, and belongs to the account"
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
	return err
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
	codesExist = []bloberror.Code{bloberror.BlobAlreadyExists, bloberror.ContainerAlreadyExists, bloberror.ConditionNotMet, bloberror.LeaseIDMissing}
)

// hasCode is bloberror.HasCode, also for redacted errors.
func hasCode(err error, codes ...bloberror.Code) bool {
	var cleaned *StorageError
	if errors.As(err, &cleaned) {
		return slices.Contains(codes, bloberror.Code(cleaned.Code))
	}
	return bloberror.HasCode(err, codes...)
}
