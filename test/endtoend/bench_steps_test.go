//go:build unix

package endtoend

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// commandTimes records when a client's commands were sent and answered.
type commandTimes struct {
	mu    sync.Mutex
	times map[string][]time.Time // by "> NAME" (sent) and "< NAME" (answered)
}

func (w *commandTimes) record(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.times == nil {
		w.times = map[string][]time.Time{}
	}
	w.times[event] = append(w.times[event], time.Now())
}

// after returns when the event first happened after begin, or the zero time.
func (w *commandTimes) after(begin time.Time, event string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.times[event] {
		if at.After(begin) {
			return at
		}
	}
	return time.Time{}
}

func (w *commandTimes) client(b *testing.B, url string) *holdfast.Client {
	b.Helper()
	noLog := slog.New(slog.DiscardHandler)
	l, err := mongo.Open(b.Context(), url, mongo.WithLogger(noLog), mongo.WithMonitor(&event.CommandMonitor{
		Started:   func(_ context.Context, e *event.CommandStartedEvent) { w.record("> " + e.CommandName) },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { w.record("< " + e.CommandName) },
	}))
	if err != nil {
		b.Fatal(err)
	}
	client, err := holdfast.New(l, holdfast.WithLogger(noLog))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Shutdown(context.Background()) })
	return client
}

// BenchmarkHandOverSteps measures the steps of a handoff: the write of the release, the delivery
// of its change event to the waiter at the same time, the write of the acquire, and the time that
// the library adds between them.
func BenchmarkHandOverSteps(b *testing.B) {
	coll := mongotest.Collection(b)
	url := mongotest.WithDatabase(mongotest.URI(b), coll.Database().Name())
	var releasing, acquiring commandTimes
	clients := [2]*holdfast.Client{releasing.client(b, url), acquiring.client(b, url)}
	for b.Loop() {
		var release, event, acquire, ours bench.Samples
		for range 200 {
			held, err := clients[0].Lock(b.Context(), lockName)
			if err != nil {
				b.Fatal(err)
			}
			next := make(chan error, 1)
			var end time.Time
			go func() {
				hold, err := clients[1].Lock(b.Context(), lockName)
				end = time.Now()
				if err == nil {
					err = hold.Release(b.Context())
				}
				next <- err
			}()
			time.Sleep(50 * time.Millisecond)
			begin := time.Now()
			if err := held.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := <-next; err != nil {
				b.Fatal(err)
			}
			releaseSent := releasing.after(begin, "> update")
			eventReceived := acquiring.after(releaseSent, "< getMore")
			acquireSent := acquiring.after(eventReceived, "> findAndModify")
			acquired := acquiring.after(acquireSent, "< findAndModify")
			if acquireSent.IsZero() || acquired.After(end) {
				continue // the waiter tried for another reason before the event
			}
			release.Add(releasing.after(releaseSent, "< update").Sub(releaseSent))
			event.Add(eventReceived.Sub(releaseSent))
			acquire.Add(acquired.Sub(acquireSent))
			ours.Add(releaseSent.Sub(begin) + acquireSent.Sub(eventReceived) + end.Sub(acquired))
		}
		b.ReportMetric(0, "ns/op") // the time of the loop is meaningless
		reportLatency(b, "release-write", &release)
		reportLatency(b, "event", &event)
		reportLatency(b, "acquire-write", &acquire)
		reportLatency(b, "ours", &ours)
	}
}
