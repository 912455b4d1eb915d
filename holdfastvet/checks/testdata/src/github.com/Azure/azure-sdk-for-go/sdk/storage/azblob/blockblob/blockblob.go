package blockblob

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
)

type (
	Client              struct{}
	UploadBufferOptions struct {
		AccessConditions *blob.AccessConditions
		Metadata         map[string]*string
	}
)

func (b *Client) BlobClient() *blob.Client { return nil }
func (b *Client) UploadBuffer(ctx context.Context, buffer []byte, o *UploadBufferOptions) (any, error) {
	return nil, nil
}
