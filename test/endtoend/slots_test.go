//go:build unix

package endtoend

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// On every backend, 8 clients share 3 slots: 3 of them hold one each, and a freed slot is acquired again.
func TestSlotsOnEveryBackend(t *testing.T) {
	serverprocess.Long(t, "the same as TestOneProgramOnEveryBackend, with slots")
	t.Parallel()
	const slots, clients = 3, 8
	for name, url := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), backendTimeout)
			defer cancel()
			holders := &slotHolders{t: t, slots: map[int]bool{}, tokens: map[int]uint64{}}
			var wg sync.WaitGroup
			for range clients {
				client, err := holdfast.Open(ctx, url, holdfast.WithTTL(15*time.Second), holdfast.WithSlots(slots),
					holdfast.WithPollInterval(500*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := client.Shutdown(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}()
				if d, _ := driver.Describe(url); d.Reach == driver.ReachProcess { // its slots are those of one client
					for range slots + 1 {
						hold, err := client.TryLock(ctx, "pool")
						if err == nil {
							holders.enter(hold)
						} else if !errors.Is(err, holdfast.ErrHeld) {
							t.Error(err)
						}
					}
					holders.checkFull(slots)
					return
				}
				wg.Go(func() {
					for range 2 {
						err := client.Do(ctx, "pool", func(ctx context.Context) error {
							hold, _ := holdfast.HoldFromContext(ctx)
							holders.enter(hold)
							defer holders.leave(hold)
							for end := time.Now().Add(20 * time.Second); !holders.wasFull(slots) && time.Now().Before(end); {
								time.Sleep(10 * time.Millisecond)
							}
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			holders.checkFull(slots)
		})
	}
}

// slotHolders records which slots are held.
type slotHolders struct {
	t      *testing.T
	mu     sync.Mutex
	slots  map[int]bool
	most   int // the largest number of slots held at the same time
	tokens map[int]uint64
}

func (b *slotHolders) enter(h *holdfast.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots[h.Slot()] || h.Token() <= b.tokens[h.Slot()] {
		b.t.Errorf("slot %d: held %v, token %d after %d", h.Slot(), b.slots[h.Slot()], h.Token(), b.tokens[h.Slot()])
	}
	b.slots[h.Slot()], b.tokens[h.Slot()] = true, h.Token()
	b.most = max(b.most, len(b.slots))
}

func (b *slotHolders) leave(h *holdfast.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.slots, h.Slot())
}

func (b *slotHolders) wasFull(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most >= n
}

func (b *slotHolders) checkFull(n int) {
	if b.mu.Lock(); b.most != n {
		b.t.Errorf("at most %d slots were held at the same time, want %d", b.most, n)
	}
	b.mu.Unlock()
}
