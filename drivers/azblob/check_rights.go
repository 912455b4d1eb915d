package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// container examines the container's own settings.
func (c *checkup) container(ctx context.Context) bool {
	var p container.GetPropertiesResponse
	err := c.run(ctx, func(ctx context.Context) (err error) {
		p, err = c.l.container.GetProperties(c.l.withRetries(ctx, 0), nil)
		return err
	})
	if err != nil {
		c.OK(subjectContainer, "%s exists", c.containerName())
		const detail = "the credential may not read the container's properties: "
		c.unchecked(subjectPublic, detail+plain(err), "Look at it with another credential:",
			fmt.Sprintf("az storage container show-permission --account-name %s --name %s", c.account(), c.containerName()))
		c.unchecked(subjectImmutable, detail+plain(err), "", "")
		return true
	}
	c.OK(subjectContainer, "%s exists", c.containerName())
	if p.BlobPublicAccess != nil && *p.BlobPublicAccess != "" {
		c.Report(driver.Finding{Subject: subjectPublic, Level: driver.LevelDoubtful,
			Detail: fmt.Sprintf("anybody may read the container without a credential (%s): owners, data and lease IDs of all locks",
				*p.BlobPublicAccess),
			Remedy: "Turn it off. With Azure's command:",
			Command: fmt.Sprintf("az storage container set-permission --account-name %s --name %s --public-access off", c.account(),
				c.containerName())})
	} else {
		c.OK(subjectPublic, "off")
	}
	held, policy := p.HasLegalHold != nil && *p.HasLegalHold, p.HasImmutabilityPolicy != nil && *p.HasImmutabilityPolicy
	if held || policy {
		c.Report(driver.Finding{Subject: subjectImmutable, Level: driver.LevelWrong,
			Detail: "the container has a legal hold or an immutability policy: the service refuses to write a lock's record again",
			Remedy: "Keep the locks in a container of their own, without them."})
	} else {
		c.OK(subjectImmutable, "no legal hold and no policy")
	}
	return true
}

// nowhere is an ETag that no blob has, so a request that names it changes nothing.
func nowhere() *blob.ModifiedAccessConditions {
	never := azcore.ETag(`"0x0"`)
	return &blob.ModifiedAccessConditions{IfMatch: &never}
}

// rights asks for each right in turn.
func (c *checkup) rights(ctx context.Context) bool {
	b := c.l.lockBlob(driver.ProbeName, "")
	conditions := &blob.AccessConditions{ModifiedAccessConditions: nowhere()}
	for _, right := range []struct {
		subject, letter, without string
		level                    driver.Level
		request                  func(context.Context) error
	}{
		{subjectRead, "r", "no lock can be acquired or read", driver.LevelWrong, func(ctx context.Context) error {
			_, err := b.blob.BlobClient().GetProperties(ctx, nil)
			return err
		}},
		{subjectCreate, "c", "the first acquire of a name fails", driver.LevelWrong, func(ctx context.Context) error {
			_, err := b.blob.Upload(ctx, requestBody(nil), &blockblob.UploadOptions{AccessConditions: conditions})
			return err
		}},
		{subjectWrite, "w", "no lock can be acquired", driver.LevelWrong, func(ctx context.Context) error {
			_, err := b.blob.BlobClient().SetMetadata(ctx, nil, &blob.SetMetadataOptions{AccessConditions: conditions})
			return err
		}},
		{subjectDelete, "d", "", driver.LevelOK, func(ctx context.Context) error {
			_, err := b.blob.Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions})
			return err
		}},
	} {
		err := c.run(ctx, func(ctx context.Context) error { return right.request(c.l.withRetries(ctx, 0)) })
		var answer *StorageError
		switch {
		case isRefusal(err) && right.level == driver.LevelOK:
			c.OK(right.subject, "not granted; locks do not need it. Without it the blob %q of this check stays, and Prune deletes nothing", b.path)
		case isRefusal(err):
			c.missingRight(right.subject, right.letter, right.without, right.level, err)
		case err != nil && (!errors.As(err, &answer) || answer.ofProxy() || answer.Status == http.StatusForbidden ||
			answer.Status >= http.StatusInternalServerError):
			c.Report(driver.Finding{Subject: right.subject, Level: max(right.level, driver.LevelUnchecked), Detail: plain(err),
				Remedy: "Check the credential, its permissions and the account's network rules, then check again."})
		default: // the blob is missing or has another ETag: the right is there
			c.OK(right.subject, "granted")
		}
	}
	return true
}

// missingRight reports a right that the service refuses.
func (c *checkup) missingRight(subject, letter, without string, level driver.Level, err error) {
	found := driver.Finding{Subject: subject, Level: level, Detail: "not granted: " + without + " (" + plain(err) + ")",
		Remedy: "Grant the identity the role Storage Blob Data Contributor on the container. With Azure's command:",
		Command: fmt.Sprintf("az role assignment create --role 'Storage Blob Data Contributor' --assignee IDENTITY --scope "+
			"/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Storage/storageAccounts/%s/blobServices/default/containers/%s",
			c.account(), c.containerName())}
	if c.l.origin != nil && c.l.origin.sas != nil {
		found.Remedy = "Make a new SAS with the permissions rcwl (this one lacks " + letter + "). With Azure's command:"
		found.Command = fmt.Sprintf("az storage container generate-sas --account-name %s --name %s --permissions rcwl --expiry TIME", c.account(),
			c.containerName())
	}
	c.Report(found)
}
