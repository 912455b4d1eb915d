//go:build unix

package workload

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/azblob"
	"github.com/holdfast-go/holdfast/test/history"
)

// blobRegister is a blob protected by azblob.NewFence.
type blobRegister struct{ blob *blockblob.Client }

func (blobRegister) name() string { return "azblob" }

func (r blobRegister) read(ctx context.Context) (registerState, error) {
	answer, err := r.blob.DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		return registerState{}, nil
	}
	if err != nil {
		return registerState{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return registerState{}, err
	}
	value, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return registerState{}, err
	}
	for key, token := range answer.Metadata {
		if strings.EqualFold(key, "holdfastfence") && token != nil {
			t, err := strconv.ParseUint(*token, 10, 64)
			return registerState{t, value}, err
		}
	}
	return registerState{}, errors.New("the blob has no fence")
}

func (r blobRegister) write(ctx context.Context, next registerState) (history.Outcome, error) {
	fence, err := azblob.NewFence(ctx, r.blob.BlobClient(), next.Token)
	switch {
	case errors.Is(err, holdfast.ErrLost):
		return history.Refused, nil
	case err != nil:
		return history.Failed, err // nothing has been sent
	}
	// The request is sent only once: the answer to a retry would not say what became of the first
	// request.
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	body := strings.NewReader(strconv.FormatInt(next.Value, 10))
	_, err = r.blob.Upload(ctx, nopCloser{body}, &blockblob.UploadOptions{AccessConditions: fence.Conditions, Metadata: fence.Metadata})
	switch {
	case err == nil:
		return history.OK, nil
	case bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists):
		return history.Failed, err // another client has written since
	}
	return history.Unknown, err
}

// nopCloser adds a Close method that does nothing, so that the body can be sent.
type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }
