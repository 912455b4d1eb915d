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
	"github.com/holdfast-go/holdfast/test/history"
)

// shutdownTimeout is how long a process may take to release everything.
const shutdownTimeout = 30 * time.Second

// MainIfConfigured runs the workload and exits, if [Start] started this process. Otherwise it
// returns.
func MainIfConfigured() {
	if os.Getenv(configVariable) == "" {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is the workload of one process.
type worker struct {
	Config
	rec     *history.Recorder
	logger  *slog.Logger
	store   storeClient
	backend *backend
	// registers are the fenced registers. All written values are different.
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
	leaks := findLeaks()
	rec.Record(exitLine(leaks))
	return errors.Join(err, leaks, rec.Close())
}

// findLeaks returns an error that lists goroutines that do not end. It waits long enough for a
// busy machine.
func findLeaks() (err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(); err == nil { // waits for half a second
			return nil
		}
	}
	return err
}

// exitLine returns the last line of a process that ends normally.
func exitLine(leaks error) history.Line {
	if leaks == nil {
		return history.Line{Kind: history.Exit}
	}
	text := leaks.Error()
	return history.Line{Kind: history.Exit, Value: max(1, int64(strings.Count(text, "Goroutine "))), Note: text}
}

// work runs until ctx ends, and then waits for its goroutines.
func work(ctx context.Context, config Config, rec *history.Recorder, logger *slog.Logger) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	var running sync.WaitGroup
	defer running.Wait()
	stallCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// A holder that does not run for half of its grace counts as paused.
	running.Go(func() { recordStalls(stallCtx, rec, config.TTL/6/2) })

	b, err := open(ctx, config, logger)
	if err != nil {
		if ctx.Err() != nil {
			return nil // the process was asked to end before it had connected
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
		waiters.Go(func() { w.loop(ctx) })
	}
	waiters.Wait()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return b.close(closeCtx)
}

// loop takes the lock again and again.
func (w *worker) loop(ctx context.Context) {
	for ctx.Err() == nil {
		w.acquireAndWork(ctx)
		select {
		case <-time.After(randomUpTo(w.MaxIdle)):
		case <-ctx.Done():
		}
	}
}

// acquireAndWork takes the lock once and works under it.
func (w *worker) acquireAndWork(ctx context.Context) {
	id := w.rec.NewID()
	w.rec.Record(history.Line{Kind: history.Ask, ID: id})
	var token uint64
	err := w.backend.client.Do(ctx, w.Lock, func(ctx context.Context) error {
		hold, _ := holdfast.HoldFromContext(ctx)
		token = hold.Token()
		stopMonitor := monitorHold(w.rec, id, hold)
		defer stopMonitor()
		return w.workUnderLock(ctx, token)
	})
	if err != nil && ctx.Err() == nil {
		w.logger.Warn("do", slog.Any("error", err))
	}
	lost := errors.Is(err, holdfast.ErrLost)
	if token != 0 && (lost || rand.IntN(8) == 0) {
		w.writeAfterHold(ctx, token)
	}
}

// workUnderLock works under the lock for a random time.
func (w *worker) workUnderLock(ctx context.Context, token uint64) error {
	hold := randomUpTo(w.MaxHold)
	if w.LongHold > 0 && rand.IntN(20) == 0 {
		hold = w.LongHold
	}
	end := time.After(hold)
	for _, r := range w.registers { // first, so that writes of earlier holders are refused from now on
		w.write(ctx, r, token)
	}
	for ctx.Err() == nil {
		if err := w.incrementCounter(ctx, token); err != nil && ctx.Err() == nil {
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
		case <-time.After(randomUpTo(maxStepInterval)):
		case <-end:
			return nil
		case <-ctx.Done():
		}
	}
	return nil
}

// maxStepInterval is the longest time between two steps under the lock.
const maxStepInterval = 40 * time.Millisecond

// writeAfterHold writes to the registers after the hold has ended, like a process that was paused
// just before the write.
func (w *worker) writeAfterHold(ctx context.Context, token uint64) {
	select {
	case <-time.After(randomUpTo(w.MaxHold)):
	case <-ctx.Done():
		return
	}
	for _, r := range w.registers {
		w.write(ctx, r, token)
	}
}

// incrementCounter adds one to the counter, in two steps that only the lock protects.
func (w *worker) incrementCounter(ctx context.Context, token uint64) error {
	n, err := w.store.counter(ctx)
	if err != nil {
		return err
	}
	time.Sleep(randomUpTo(3 * time.Millisecond))
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.store.setCounter(ctx, update{Client: w.Client, Process: w.Process, Token: token, Base: n})
}

// operationTimeout is how long one operation on a register may take.
const operationTimeout = 5 * time.Second

func (w *worker) write(ctx context.Context, r register, token uint64) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	value := int64(w.Process)*1_000_000 + w.values.Add(1)
	done := w.rec.Call(history.Write, r.name(), token, value)
	outcome, err := r.write(ctx, registerState{token, value})
	done(outcome, token, value)
	if err != nil {
		w.logger.Debug("write", slog.String("register", r.name()), slog.Any("error", err))
	}
}

func (w *worker) read(ctx context.Context, r register) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
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

// randomUpTo returns a random duration of at most the given one.
func randomUpTo(most time.Duration) time.Duration { return rand.N(most) + 1 }
