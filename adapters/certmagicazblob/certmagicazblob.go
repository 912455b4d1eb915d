// Package certmagicazblob stores the certificates of github.com/caddyserver/certmagic, and with it
// Caddy's, in Azure Blob Storage, beside the locks. The instances of a cluster then share nothing
// but a container. It does not require certmagic: the interfaces are met structurally.
//
//	storage, client, err := certmagicazblob.Open[certmagic.KeyInfo](ctx, "azblob://ACCOUNT/CONTAINER")
//	certmagic.Default.Storage = storage
//	…
//	err = client.Shutdown(ctx) // after certmagic was stopped
//
// # What is stored
//
// Each key is one block blob, replaced in one step. Private keys are stored as certmagic gives
// them, so give no one else access to the container.
//
// Keys have the meaning that they have in certmagic.FileStorage, with two differences. A
// directory exists only as long as a key is below it. A key that is a prefix of others may have
// a value itself: it is then listed once, and deleted together with them. The deletion of a
// directory is one request for each key in it, and not atomic.
//
// What an instance stores after it has lost its lock is not fenced; see package certmagiclock.
package certmagicazblob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/adapters/internal/filekeys"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/azblob"
)

const (
	// MaxValue is the longest value in bytes, the same as with MongoDB.
	MaxValue = filekeys.MaxValue

	backend = "azblob"
	// A call about one key is limited to keyTimeout, one about a directory to listTimeout, and
	// each of their requests to requestTimeout, which suffices for the longest value.
	keyTimeout, listTimeout, requestTimeout = time.Minute, 2 * time.Minute, 20 * time.Second
)

// Folders of the container, or of the URL's prefix, that [Open] uses.
const (
	locksFolder = "locks"
	filesFolder = "files"
)

// Open returns a complete certmagic Storage. The URL is that of package drivers/azblob. The locks
// are in the folder "locks" of the container, or of the URL's prefix, and the values in the folder
// "files". The container is created if it is missing. The Client's Shutdown closes the
// connections; stop certmagic before it.
func Open[Info certmagiclock.KeyInfo](ctx context.Context, rawURL string, opts ...holdfast.ClientOption) (*certmagiclock.Storage[Info],
	*holdfast.Client, error) {
	parsed, err := url.Parse(rawURL)
	if err != nil || strings.Trim(parsed.Path, "/") == "" {
		return nil, nil, driver.Invalid("URL", "with scheme azblob", "of the form azblob://ACCOUNT/CONTAINER[/PREFIX]")
	}
	_, prefix, _ := strings.Cut(strings.Trim(parsed.Path, "/"), "/")
	// Only the path is changed. The driver checks everything else.
	address, query, found := strings.Cut(rawURL, "?")
	address = strings.TrimSuffix(address, "/") + "/" + locksFolder
	if found {
		address += "?" + query
	}
	locker, err := azblob.Open(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	client, err := holdfast.New(locker, opts...)
	if err != nil {
		return nil, nil, errors.Join(err, locker.Close(ctx))
	}
	storage, err := NewStorage[Info](locker.Container(), prefix+"/"+filesFolder, client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Shutdown(ctx))
	}
	return storage, client, nil
}

// NewStorage makes a complete certmagic Storage. The values are in a folder of a container of the
// program's own, and the locks are those of client, which may have another backend. It sends
// nothing.
func NewStorage[Info certmagiclock.KeyInfo](container *container.Client, folder string, client *holdfast.Client,
	opts ...holdfast.Option) (*certmagiclock.Storage[Info], error) {
	files, err := NewFiles[Info](container, folder)
	if err != nil {
		return nil, err
	}
	locker, err := certmagiclock.NewLocker(client, opts...)
	if err != nil {
		return nil, err
	}
	return certmagiclock.NewStorage(files, locker)
}

// Files stores values. All methods are safe for concurrent use.
type Files[Info certmagiclock.KeyInfo] struct {
	container *container.Client
	prefix    string // of the blobs' names: empty, or with a slash at its end
	folder    string
}

// NewFiles makes Files in a folder of a container, such as "certificates"; "" is the whole
// container. Nothing else may write to the folder. NewFiles sends nothing; the first Store
// creates a missing container.
func NewFiles[Info certmagiclock.KeyInfo](container *container.Client, folder string) (*Files[Info], error) {
	if container == nil {
		return nil, driver.Invalid("container client", "nil", "a *container.Client")
	}
	clean, err := filekeys.Clean(folder)
	if err != nil {
		return nil, err
	}
	return &Files[Info]{container, filekeys.Below(blobName(clean)), clean}, nil
}

// String names the folder, for certmagic's log.
func (f *Files[Info]) String() string {
	name := "Azure Blob Storage"
	if address, err := url.Parse(f.container.URL()); err == nil { // the URL may have a SAS
		name += " " + address.Host + address.Path
	}
	return strings.TrimSuffix(name+"/"+f.folder, "/")
}

// Store sets the value of a key. The error is an *[holdfast.InvalidError] if the value is longer
// than [MaxValue].
func (f *Files[Info]) Store(ctx context.Context, key string, value []byte) error {
	key, invalid := filekeys.CleanFile(key)
	if invalid == nil {
		invalid = filekeys.CheckValue(value)
	}
	return f.do(ctx, "store", key, invalid, keyTimeout, func(ctx context.Context) error {
		store := func() error {
			_, err := f.container.NewBlockBlobClient(f.blob(key)).Upload(ctx, streaming.NopCloser(bytes.NewReader(value)), nil)
			return err
		}
		err := store()
		if !bloberror.HasCode(err, bloberror.ContainerNotFound) {
			return err
		}
		if _, err := f.container.Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return err
		}
		return store()
	})
}

// Load returns the value of a key. The error matches [fs.ErrNotExist] if the key has none.
func (f *Files[Info]) Load(ctx context.Context, key string) (value []byte, err error) {
	key, invalid := filekeys.Clean(key)
	err = f.do(ctx, "load", key, invalid, keyTimeout, func(ctx context.Context) error {
		if key == "" {
			return fs.ErrNotExist
		}
		answer, err := f.container.NewBlobClient(f.blob(key)).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		value, err = io.ReadAll(io.LimitReader(answer.Body, MaxValue+1))
		if err == nil && len(value) > MaxValue {
			err = fmt.Errorf("the blob has more than %d bytes", MaxValue)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Delete deletes a key and all keys below it. A key that does not exist is no error.
func (f *Files[Info]) Delete(ctx context.Context, key string) error {
	key, invalid := filekeys.Clean(key)
	return f.do(ctx, "delete", key, invalid, listTimeout, func(ctx context.Context) error {
		keys, err := f.below(ctx, key, true)
		if err != nil && !missing(err) {
			return err
		}
		if key != "" {
			keys = append(keys, key)
		}
		for _, one := range keys {
			_, err := f.container.NewBlobClient(f.blob(one)).Delete(ctx,
				&blob.DeleteOptions{DeleteSnapshots: to.Ptr(blob.DeleteSnapshotsOptionTypeInclude)})
			if err != nil && !missing(err) {
				return err
			}
		}
		return nil
	})
}

// Exists reports whether a key has a value or is a directory; false also if that cannot be
// found out.
func (f *Files[Info]) Exists(ctx context.Context, key string) bool {
	_, err := f.Stat(ctx, key)
	return err == nil
}

// Stat describes a key. The error matches [fs.ErrNotExist] if the key does not exist. Size and
// time of a directory are zero.
func (f *Files[Info]) Stat(ctx context.Context, key string) (Info, error) {
	info := Info{Key: key}
	clean, invalid := filekeys.Clean(key)
	err := f.do(ctx, "stat", clean, invalid, keyTimeout, func(ctx context.Context) error {
		found, err := f.properties(ctx, clean)
		if missing(err) {
			below, listErr := f.below(ctx, clean, false)
			if listErr == nil && len(below) == 0 {
				return fs.ErrNotExist
			}
			return listErr
		}
		if err != nil {
			return err
		}
		var modified time.Time
		if found.LastModified != nil {
			modified = *found.LastModified
		}
		var size int64
		if found.ContentLength != nil {
			size = *found.ContentLength
		}
		info = Info{Key: key, Modified: modified, Size: size, IsTerminal: true}
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// List returns the keys directly below a directory, or with recursive all below it, directories
// included, in the order of certmagic.FileStorage. The list of a file is empty. The error
// matches [fs.ErrNotExist] if the path does not exist.
func (f *Files[Info]) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	dir, invalid := filekeys.Clean(path)
	var files []string
	err := f.do(ctx, "list", dir, invalid, listTimeout, func(ctx context.Context) error {
		var err error
		if files, err = f.below(ctx, dir, recursive); err != nil || len(files) > 0 {
			return err
		}
		_, err = f.properties(ctx, dir)
		return err
	})
	return filekeys.List(dir, files, recursive), err
}

// properties describes the blob of a key.
func (f *Files[Info]) properties(ctx context.Context, key string) (blob.GetPropertiesResponse, error) {
	if key == "" {
		return blob.GetPropertiesResponse{}, fs.ErrNotExist
	}
	return f.container.NewBlobClient(f.blob(key)).GetProperties(ctx, nil)
}

// below returns the keys below a directory; without recursive the service returns each
// directory in it once.
func (f *Files[Info]) below(ctx context.Context, dir string, recursive bool) ([]string, error) {
	prefix := f.prefix + filekeys.Below(blobName(dir))
	var keys []string
	add := func(name *string) {
		if name == nil {
			return
		}
		if key, ok := keyOf(strings.TrimSuffix(strings.TrimPrefix(*name, f.prefix), "/")); ok {
			keys = append(keys, key)
		}
	}
	if recursive {
		for pager := f.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix}); pager.More(); {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, item := range page.Segment.BlobItems {
				add(item.Name)
			}
		}
		return keys, nil
	}
	for pager := f.container.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Segment.BlobItems {
			add(item.Name)
		}
		for _, folder := range page.Segment.BlobPrefixes {
			add(folder.Name)
		}
	}
	return keys, nil
}

// blob returns the name of a key's blob.
func (f *Files[Info]) blob(key string) string { return f.prefix + blobName(key) }

// missing reports whether there is no such blob. A container that does not exist has none.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound)
}

// do runs the requests of one call within a time limit, and wraps their error.
func (f *Files[Info]) do(ctx context.Context, verb, key string, invalid error, limit time.Duration,
	requests func(context.Context) error) error {
	err := invalid
	if err == nil && len(f.blob(key)) > filekeys.MaxKey {
		err = driver.Invalid("key", driver.Quote(key),
			fmt.Sprintf("shorter: a blob's name has at most %d characters, and most special characters take three", filekeys.MaxKey))
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = requests(policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: 3, TryTimeout: requestTimeout,
			RetryDelay: 100 * time.Millisecond, MaxRetryDelay: limit}))
	}
	switch {
	case err == nil:
		return nil
	case missing(err):
		err = fs.ErrNotExist
	default:
		err = azblob.Redact(err)
	}
	return &driver.OpError{Op: verb, Backend: backend, Name: key, Err: err}
}
