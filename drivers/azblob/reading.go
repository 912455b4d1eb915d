package azblob

import (
	"context"
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// MissingStore says which container does not exist, for [driver.MissingStore]. It lists one blob: a SAS
// for the container cannot read the container's own properties.
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	one := int32(1)
	pager := l.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: &one})
	err := l.do(ctx, op{verb: "look for the container"}, func(ctx context.Context) error {
		_, err := pager.NextPage(l.withRetries(ctx, 0))
		return err
	})
	var refused *StorageError
	switch {
	case hasCode(err, bloberror.ContainerNotFound):
		if l.origin == nil {
			return "the container", nil
		}
		return "the container " + l.origin.location.container, nil
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden: // the credential may not list
		return "", nil
	}
	return "", err
}
