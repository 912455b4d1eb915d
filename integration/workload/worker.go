//go:build unix

package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/integration/history"
)

// closing is how long a process may take to give everything back.
const closing = 30 * time.Second

// MainIfConfigured works and ends the process, if it was started by [Start].
func MainIfConfigured() {
	if os.Getenv(envConfig) == "" {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is one process.
type worker struct {
	Config
	rec     *history.Recorder
	logger  *slog.Logger
	store   storeClient
	backend *backend
	// registers are the fenced ones; values are made such that no two writes have one.
	registers []register
	values    atomic.Int64
}

func run() error {
	config, err := configFromEnv()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	rec, err := history.NewRecorder(config.Dir, config.Client, config.Process)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	err = work(ctx, config, rec, logger)
	stop()
	leaks := leftOver()
	rec.Record(exit(leaks))
	return errors.Join(err, leaks, rec.Close())
}

// leftOver finds goroutines that do not end, in as much time as a busy machine needs.
func leftOver() (err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(); err == nil { // it waits for half a second itself
			return nil
		}
	}
	return err
}

// exit is the last line of a process that ends in order.
func exit(leaks error) history.Line {
	if leaks == nil {
		return history.Line{Kind: history.Exit}
	}
	text := leaks.Error()
	return history.Line{Kind: history.Exit, Value: max(1, int64(strings.Count(text, "Goroutine "))), Note: text}
}

// work goes on until ctx ends, and leaves nothing behind.
func work(ctx context.Context, config Config, rec *history.Recorder, logger *slog.Logger) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// A holder that stands still for half of its grace is as good as paused.
	running.Go(func() { feelPulse(beating, rec, config.TTL/6/2) })

	b, err := open(ctx, config, logger)
	if err != nil {
		if ctx.Err() != nil {
			return nil // it was told to end before there was a backend
		}
		return err
	}
	store := storeClient{config.Store, &http.Client{Transport: transport}}
	w := &worker{Config: config, rec: rec, logger: logger, store: store, backend: b, registers: []register{store}}
	if b.register != nil {
		w.registers = append(w.registers, b.register)
	}
	var waiters sync.WaitGroup
	for range max(w.Waiters, 1) {
		waiters.Go(func() { w.again(ctx) })
	}
	waiters.Wait()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	return b.close(closing)
}

// again takes the lock time after time.
func (w *worker) again(ctx context.Context) {
	for ctx.Err() == nil {
		w.once(ctx)
		select {
		case <-time.After(randomly(w.Between)):
		case <-ctx.Done():
		}
	}
}

// once takes the lock and works under it.
func (w *worker) once(ctx context.Context) {
	id := w.rec.NewID()
	w.rec.Record(history.Line{Kind: history.Ask, ID: id})
	var token uint64
	err := w.backend.client.Do(ctx, w.Lock, func(ctx context.Context) error {
		hold, _ := holdfast.HoldFromContext(ctx)
		token = hold.Token()
		leave := watch(w.rec, id, hold)
		defer leave()
		return w.under(ctx, token)
	})
	if err != nil && ctx.Err() == nil {
		w.logger.Warn("do", slog.Any("error", err))
	}
	lost := errors.Is(err, holdfast.ErrLost)
	if token != 0 && (lost || rand.IntN(8) == 0) {
		w.late(ctx, token)
	}
}

// under is the work under the lock, for a random time.
func (w *worker) under(ctx context.Context, token uint64) error {
	hold := randomly(w.Hold)
	if w.Long > 0 && rand.IntN(20) == 0 {
		hold = w.Long
	}
	end := time.After(hold)
	for _, r := range w.registers { // first of all, so that nobody's write from before is accepted after this
		w.write(ctx, r, token)
	}
	for ctx.Err() == nil {
		if err := w.add(ctx, token); err != nil && ctx.Err() == nil {
			return err
		}
		r := w.registers[rand.IntN(len(w.registers))]
		switch rand.IntN(4) {
		case 0:
			w.read(ctx, r)
		case 1, 2:
			w.write(ctx, r, token)
		}
		select {
		case <-time.After(randomly(step)):
		case <-end:
			return nil
		case <-ctx.Done():
		}
	}
	return nil
}

// step is up to how long a worker waits between its steps under the lock.
const step = 40 * time.Millisecond

// late writes to the registers after the hold is over, as a process does that was
// paused just before.
func (w *worker) late(ctx context.Context, token uint64) {
	select {
	case <-time.After(randomly(w.Hold)):
	case <-ctx.Done():
		return
	}
	for _, r := range w.registers {
		w.write(ctx, r, token)
	}
}

// add adds one to the counter, in two steps that nothing but the lock protects.
func (w *worker) add(ctx context.Context, token uint64) error {
	n, err := w.store.counter(ctx)
	if err != nil {
		return err
	}
	time.Sleep(randomly(3 * time.Millisecond))
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.store.setCounter(ctx, update{Client: w.Client, Process: w.Process, Token: token, Base: n})
}

// answers is how long one operation on a register may take.
const answers = 5 * time.Second

func (w *worker) write(ctx context.Context, r register, token uint64) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	value := int64(w.Process)*1_000_000 + w.values.Add(1)
	done := w.rec.Call(history.Write, r.name(), token, value)
	outcome, err := r.write(ctx, content{token, value})
	done(outcome, token, value)
	if err != nil {
		w.logger.Debug("write", slog.String("register", r.name()), slog.Any("error", err))
	}
}

func (w *worker) read(ctx context.Context, r register) {
	ctx, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	done := w.rec.Call(history.Read, r.name(), 0, 0)
	found, err := r.read(ctx)
	if err != nil {
		done(history.Unknown, 0, 0)
		w.logger.Debug("read", slog.String("register", r.name()), slog.Any("error", err))
		return
	}
	done(history.OK, found.Token, found.Value)
}

// randomly is a random time of up to most.
func randomly(most time.Duration) time.Duration { return rand.N(most) + 1 }
