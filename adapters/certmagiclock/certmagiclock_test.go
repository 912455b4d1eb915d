package certmagiclock_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
)

// KeyInfo stands for certmagic.KeyInfo, and noFiles for certmagic.FileStorage, so that this
// example needs no other module.
type KeyInfo struct{}

type noFiles struct{}

func (noFiles) Store(context.Context, string, []byte) error          { return nil }
func (noFiles) Load(context.Context, string) ([]byte, error)         { return nil, fs.ErrNotExist }
func (noFiles) Delete(context.Context, string) error                 { return nil }
func (noFiles) Exists(context.Context, string) bool                  { return false }
func (noFiles) List(context.Context, string, bool) ([]string, error) { return nil, fs.ErrNotExist }
func (noFiles) Stat(context.Context, string) (KeyInfo, error)        { return KeyInfo{}, fs.ErrNotExist }

func TestInvalidArguments(t *testing.T) {
	for what, err := range map[string]error{
		"nil client": func() error { _, err := certmagiclock.NewLocker(nil); return err }(),
		"nil locker": func() error { _, err := certmagiclock.NewStorage(noFiles{}, nil); return err }(),
		"nil files":  func() error { _, err := certmagiclock.NewStorage[KeyInfo](nil, &certmagiclock.Locker{}); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func ExampleStorage() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	locker, err := certmagiclock.NewLocker(client)
	if err != nil {
		log.Fatal(err)
	}
	storage, err := certmagiclock.NewStorage(noFiles{}, locker) // for certmagic.Default.Storage
	if err != nil {
		log.Fatal(err)
	}

	// What certmagic does to obtain a certificate:
	if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil {
		log.Fatal(err)
	}
	again, err := storage.TryLock(ctx, "issue_cert_example.com")
	fmt.Println("taken a second time:", again, err)
	fmt.Println("renewed:", storage.RenewLockLease(ctx, "issue_cert_example.com", time.Minute))
	fmt.Println("unlocked:", storage.Unlock(ctx, "issue_cert_example.com"))
	_ = client.Shutdown(ctx)
	// Output:
	// taken a second time: false <nil>
	// renewed: <nil>
	// unlocked: <nil>
}
