package engine

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batchread"
)

// lane is what the callers that ask for locks in one mode have in common in the backend's queues. Readers and writers of a process are
// two waiters: a grant ends the position of its waiter, so readers that follow one another would keep a writer of their process
// out forever.
type lane struct {
	waiter    driver.WaiterID
	positions positions
	reader    *batchread.Reader // of records with the waiter's positions; nil where the backend does not read in batches
}

func (l *lane) begin(c *Client, limit time.Duration) {
	l.waiter = driver.NewWaiterID()
	l.reader = batchread.New(c.closing, c.capabilities.BatchInspector, l.waiter, c.now, limit)
	p := &l.positions
	p.queue, p.waiter, p.now, p.closing, p.base, p.planned = c.capabilities.Queue, l.waiter, c.now, c.closing, c.base, make(chan struct{}, 1)
}

// lane is that of the acquisition's mode.
func (a *Acquisition) lane() *lane { return &a.client.lanes[a.settings.Mode] }
