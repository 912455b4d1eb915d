package azblob

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/holdfast-go/holdfast"
)

type Fence struct {
	Conditions *blob.AccessConditions
	Metadata   map[string]*string
}

func NewFence(ctx context.Context, b *blob.Client, token uint64) (*Fence, error) { return nil, nil }
func Conditions(held holdfast.Lease) *blob.AccessConditions                      { return nil }
