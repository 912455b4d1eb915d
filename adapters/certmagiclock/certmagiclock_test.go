package certmagiclock_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
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

// certmagic never locks again, but it asks for a renewal before each of its attempts.
func TestRenewLockLeaseAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "issue_cert_example.com"
		store, ctx := memory.NewStore(), t.Context()
		lockers := [2]*certmagiclock.Locker{}
		for i := range lockers {
			locker, err := certmagiclock.NewLocker(locktest.NewClient(t, store.Locker()))
			if err != nil {
				t.Fatal(err)
			}
			lockers[i] = locker
		}
		mine, others := lockers[0], lockers[1]
		lose := func() {
			store.Remove(name)
			time.Sleep(time.Minute)
		}
		if err := mine.Lock(ctx, name); err != nil {
			t.Fatal(err)
		}
		lose()
		attempt, cancel := context.WithCancel(ctx)
		if err := mine.RenewLockLease(attempt, name, time.Hour); err != nil {
			t.Fatalf("the lock is free: %v", err)
		}
		cancel() // the attempt's context does not end the hold
		time.Sleep(time.Hour)
		if ok, err := others.TryLock(ctx, name); ok || err != nil {
			t.Fatalf("another after the renewal: %t, %v", ok, err)
		}
		lose()
		if ok, err := others.TryLock(ctx, name); !ok || err != nil {
			t.Fatalf("another after the loss: %t, %v", ok, err)
		}
		for range 2 {
			if err := mine.RenewLockLease(ctx, name, time.Hour); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("another has the lock: %v", err)
			}
			if ok, err := mine.TryLock(ctx, name); ok || err != nil {
				t.Errorf("another operation of this process: %t, %v", ok, err)
			}
		}
		if err := others.Unlock(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := mine.RenewLockLease(ctx, name, time.Hour); err != nil {
			t.Errorf("the other has released the lock: %v", err)
		}
		if err := mine.Unlock(ctx, name); err != nil {
			t.Error(err)
		}
		for what, locker := range map[string]*certmagiclock.Locker{"this": mine, "the other": others} {
			if ok, err := locker.TryLock(ctx, name); !ok || err != nil || locker.Unlock(ctx, name) != nil {
				t.Errorf("%s process after Unlock: %t, %v", what, ok, err)
			}
		}
		if err := mine.RenewLockLease(ctx, name, time.Hour); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("RenewLockLease without a lock: %v", err)
		}
	})
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
