//go:build unix

package endtoend

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/internal/bench"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// wire notes when a client's commands were sent and answered.
type wire struct {
	mu   sync.Mutex
	seen map[string][]time.Time // by "> NAME", "< NAME"
}

func (w *wire) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string][]time.Time{}
	}
	w.seen[what] = append(w.seen[what], time.Now())
}

// after returns the first such moment after another, or the zero time.
func (w *wire) after(begin time.Time, what string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.seen[what] {
		if at.After(begin) {
			return at
		}
	}
	return time.Time{}
}

func (w *wire) client(b *testing.B, url string) *holdfast.Client {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	l, err := mongo.Open(b.Context(), url, mongo.WithLogger(quiet), mongo.WithMonitor(&event.CommandMonitor{
		Started:   func(_ context.Context, e *event.CommandStartedEvent) { w.note("> " + e.CommandName) },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { w.note("< " + e.CommandName) },
	}))
	if err != nil {
		b.Fatal(err)
	}
	client, err := holdfast.New(l, holdfast.WithLogger(quiet))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Shutdown(context.Background()) })
	return client
}

// BenchmarkHandOverSteps shows where the time of a hand-over goes: the write of the
// release, the event's way to the waiter beside it, the write of the acquire, and what
// the library adds between them.
func BenchmarkHandOverSteps(b *testing.B) {
	coll := mongotest.Collection(b)
	url := strings.Replace(mongotest.URI(b), "/?", "/"+coll.Database().Name()+"?", 1)
	var giving, taking wire
	clients := [2]*holdfast.Client{giving.client(b, url), taking.client(b, url)}
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
			sent := giving.after(begin, "> update")
			told := taking.after(sent, "< getMore")
			asked := taking.after(told, "> findAndModify")
			got := taking.after(asked, "< findAndModify")
			if asked.IsZero() || got.After(end) {
				continue // it asked for another reason before the event came
			}
			release.Add(giving.after(sent, "< update").Sub(sent))
			event.Add(told.Sub(sent))
			acquire.Add(got.Sub(asked))
			ours.Add(sent.Sub(begin) + asked.Sub(told) + end.Sub(got))
		}
		b.ReportMetric(0, "ns/op") // the loop's own time says nothing
		reportLatency(b, "release-write", &release)
		reportLatency(b, "event", &event)
		reportLatency(b, "acquire-write", &acquire)
		reportLatency(b, "ours", &ours)
	}
}
