package azblob

import (
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// StorageError is an answer of the service that was none of those expected. It
// takes the place of the SDK's *azcore.ResponseError, whose text quotes the
// service's: that repeats the request's headers, lease ID and signature
// included, when a signature does not match.
type StorageError struct {
	Status    int    // of HTTP
	Code      string // such as "ServerBusy"; may be empty
	RequestID string // for Azure's support; may be empty
}

// Error names the code and, for some codes, what to do.
func (e *StorageError) Error() string {
	text := fmt.Sprintf("the service answered %d %s", e.Status, e.Code)
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	switch bloberror.Code(e.Code) {
	case bloberror.AuthorizationPermissionMismatch:
		text += ": the identity needs the role Storage Blob Data Contributor on the container, a SAS the permissions rcwl"
	case bloberror.AuthorizationFailure:
		text += ": the credential is wrong or lacks a right, or the account's network rules refuse this machine"
	case bloberror.AuthenticationFailed, bloberror.NoAuthenticationInformation, bloberror.InvalidAuthenticationInfo:
		text += ": the credential is wrong, has expired, or is another account's"
	case bloberror.ContainerNotFound:
		text += ": the container does not exist"
	}
	return text
}

// clean keeps secrets out of an error of the SDK: the service's text, and the
// URL, which may carry a SAS.
func clean(err error) error {
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
		return clean(request.Err)
	}
	return err
}

// Answers by their code: the same fact has status 409 in one request and 412 in
// another. https://learn.microsoft.com/rest/api/storageservices/lease-blob
var (
	// codesGone: there is no blob, so nobody holds its lease.
	codesGone = []bloberror.Code{bloberror.BlobNotFound, bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted}
	// codesLost: the lease is not the one whose ID was sent.
	codesLost = append([]bloberror.Code{
		bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseNotPresentWithLeaseOperation,
		bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseNotPresentWithBlobOperation,
		bloberror.LeaseIsBrokenAndCannotBeRenewed, bloberror.LeaseLost,
	}, codesGone...)
	// codesExist: somebody was quicker with a blob or a container. A blob that
	// is leased already says so before it says that it exists.
	codesExist = []bloberror.Code{bloberror.BlobAlreadyExists, bloberror.ContainerAlreadyExists, bloberror.ConditionNotMet, bloberror.LeaseIDMissing}
)

// hasCode is like bloberror.HasCode, also for errors that were cleaned.
func hasCode(err error, codes ...bloberror.Code) bool {
	var cleaned *StorageError
	if errors.As(err, &cleaned) {
		return slices.Contains(codes, bloberror.Code(cleaned.Code))
	}
	return bloberror.HasCode(err, codes...)
}
