//go:build unix

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// losesOne cannot renew the lock "a", and answers releases after two seconds.
type losesOne struct{ driver.Locker }

func (l losesOne) Renew(ctx context.Context, lease driver.Lease) (driver.Lease, error) {
	if lease.Name == "a" {
		return driver.Lease{}, errUnreachable
	}
	return l.Locker.Renew(ctx, lease)
}

func (l losesOne) Release(ctx context.Context, lease driver.Lease) error {
	time.Sleep(2 * time.Second)
	return l.Locker.Release(ctx, lease)
}

func (losesOne) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// After the loss of one lock of --with, the others still have to be released.
func TestTheOtherLocksAreReleasedAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := holdfast.New(losesOne{memory.New()}, append(bubbleOptions(), holdfast.WithTTL(30*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := client.LockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		run := &runner{runCmd: &runCmd{Name: "a"}, log: messages.NewLog(&out, false, false), client: client, acquired: true}
		time.Sleep(31 * time.Second) // the lease of "a" has expired; that of "b" was renewed all the time
		run.release(several{all, strings.Join(all.Names(), ", ")})
		r, err := client.Inspect(t.Context(), "b")
		run.close()
		if err != nil || r.State != driver.StateFree {
			t.Errorf("b is %v (%v); messages: %q", r.State, err, out.String())
		}
		time.Sleep(time.Minute)
	})
}
