package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exposition"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/httpserver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

// metrics answers with what this process measures, in the format of Prometheus.
type metrics struct {
	hook   telemetry.Hook
	reader *metric.ManualReader
	more   func() []exposition.Family // beside what this process measures; may be nil
}

func newMetrics(opts ...otelholdfast.Option) (*metrics, error) {
	reader := metric.NewManualReader()
	opts = append(opts, otelholdfast.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	measured, err := otelholdfast.New(opts...)
	if err != nil {
		return nil, err
	}
	return &metrics{hook: measured, reader: reader}, nil
}

// ServeHTTP implements [http.Handler].
func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	families, err := exposition.Measured(r.Context(), m.reader)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	built := build()
	info := exposition.Family{Name: "holdfast_build_info", Help: "1, with the version of this command.", Type: exposition.Gauge}
	info.Add(1, "version", orUnknown(built.Version), "commit", orUnknown(built.Commit), "goversion", built.Go)
	families = append(families, info)
	if m.more != nil {
		families = append(families, m.more()...)
	}
	w.Header().Set("Content-Type", exposition.ContentType)
	_ = exposition.Write(w, families) // a scraper that has gone away needs no answer
}

// overrunHook counts an overrun only if the command may have run on. The guardian is asked on
// another goroutine, because a hook does not wait.
type overrunHook struct {
	telemetry.Hook
	running *atomic.Pointer[runningCommand]
	asking  sync.WaitGroup
}

// Overrun implements [telemetry.Hook].
func (h *overrunHook) Overrun(ctx context.Context, op telemetry.Operation) {
	command := h.running.Load()
	h.asking.Go(func() {
		if command.overran(op.Token) {
			h.Hook.Overrun(ctx, op)
		}
	})
}

// probes are what "holdfast run --listen" answers about.
type probes struct {
	options []holdfast.ClientOption // of the client that is measured
	hold    atomic.Pointer[held]    // under which the command runs, or nil
}

// ready answers 200 while the command runs under the lock. Whoever can reach the address may ask, so it
// tells no more.
func (p *probes) ready(w http.ResponseWriter, _ *http.Request) {
	if h := p.hold.Load(); h == nil || h.Err() != nil {
		http.Error(w, "the command does not run under the lock", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

const (
	// runConnections is how many connections metrics and probes may have.
	runConnections  = 64
	runWriteTimeout = 10 * time.Second
)

// listen serves metrics and probes until end is called.
func (r *runner) listen() (end func(), err error) {
	measured, err := newMetrics(
		otelholdfast.WithLockName(func(name string) string {
			if len(r.With) > 0 {
				return name
			}
			return r.Name // also for the records of slots
		}),
		otelholdfast.WithLeaders(func(string) bool { return !r.Shared && len(r.With) == 0 }))
	if err != nil {
		return nil, err
	}
	guard := func(next http.Handler) http.Handler { return httpserver.RequireOwnHost(nil, next) }
	if r.TokenFile != "" {
		if guard, err = secretGuard(r.TokenFile, r.log); err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", r.Listen)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", guard(measured))
	mux.HandleFunc("GET /healthz", httpserver.Healthy)
	mux.HandleFunc("GET /readyz", r.probes.ready)
	server := httpserver.New(mux, runConnections)
	server.WriteTimeout = runWriteTimeout
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := httpserver.NotClosed(server.Serve(listener)); err != nil {
			r.log.Errorf("metrics and probes: %v", err)
		}
	}()
	r.log.Infof("metrics and probes are at http://%s/", listener.Addr())
	overruns := &overrunHook{Hook: measured.hook, running: &r.events.running}
	r.probes.options = []holdfast.ClientOption{holdfast.WithHook(overruns)}
	return func() {
		overruns.asking.Wait()
		_ = server.Close() // the process ends; a scrape that is cut off is of no use any more
		<-ended
	}, nil
}
