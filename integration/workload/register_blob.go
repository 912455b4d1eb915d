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
	"github.com/holdfast-go/holdfast/integration/history"
)

// blobRegister is a blob behind azblob.NewFence.
type blobRegister struct{ blob *blockblob.Client }

func (blobRegister) name() string { return "azblob" }

func (r blobRegister) read(ctx context.Context) (content, error) {
	answer, err := r.blob.DownloadStream(ctx, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		return content{}, nil
	}
	if err != nil {
		return content{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return content{}, err
	}
	value, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return content{}, err
	}
	for key, token := range answer.Metadata {
		if strings.EqualFold(key, "holdfastfence") && token != nil {
			t, err := strconv.ParseUint(*token, 10, 64)
			return content{t, value}, err
		}
	}
	return content{}, errors.New("the blob has no fence")
}

func (r blobRegister) write(ctx context.Context, next content) (history.Outcome, error) {
	fence, err := azblob.NewFence(ctx, r.blob.BlobClient(), next.Token)
	switch {
	case errors.Is(err, holdfast.ErrLost):
		return history.Refused, nil
	case err != nil:
		return history.Failed, err // nothing was written yet
	}
	// Sent once: the answer to a second try would not tell what became of the first.
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	body := strings.NewReader(strconv.FormatInt(next.Value, 10))
	_, err = r.blob.Upload(ctx, nopCloser{body}, &blockblob.UploadOptions{AccessConditions: fence.Conditions, Metadata: fence.Metadata})
	switch {
	case err == nil:
		return history.OK, nil
	case bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists):
		return history.Failed, err // it was written since, by whatever token
	}
	return history.Unknown, err
}

// nopCloser is a body that can be sent again and needs no end.
type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }
