package holdfasttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
)

func lock(t *testing.T, c *holdfast.Client) *holdfast.Hold {
	t.Helper()
	h, err := c.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Lose ends only the present hold. The lock is free again when the work has released it.
func TestLoseEndsThePresentHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		a, c := b.Process("A"), b.Process("C")
		first := lock(t, a.Client())
		if b.Holder("job") != "A" || a.Hold("job") != first || c.Hold("job") != nil {
			t.Fatalf("the holder is %q", b.Holder("job"))
		}
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- lock(t, c.Client()) }()
		synctest.Wait()
		start := time.Now()
		b.Lose("job")
		if err := first.Err(); !errors.Is(err, holdfast.ErrLost) || time.Since(start) != 0 {
			t.Errorf("after Lose, which took %v: %v", time.Since(start), err)
		}
		if a.Hold("job") != nil {
			t.Error("the process still has the lost hold")
		}
		synctest.Wait()
		if b.Holder("job") != "A" {
			t.Errorf("the work has not returned, and the holder is %q", b.Holder("job"))
		}
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if next := <-granted; next.Err() != nil || time.Since(start) > 200*time.Millisecond {
			t.Errorf("the next holder: %v, after %v", next.Err(), time.Since(start))
		}
	})
}

// All readers lose their lock, also several of one process, and after the latest has gone.
func TestLoseOfReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, shared := holdfasttest.New(t), holdfast.WithShared()
		var holds []*holdfast.Hold
		for _, who := range []string{"A", "B", "B", "C"} {
			h, err := b.Process(who).Client().TryLock(t.Context(), "job", shared)
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, h)
		}
		if b.Process("B").Hold("job") != holds[2] {
			t.Error("the hold of B is not its latest")
		}
		if err := holds[3].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.Holder("job"); got != "B" {
			t.Errorf("after the latest reader has gone, the holder is %q", got)
		}
		b.Lose("job")
		for _, h := range holds[:3] {
			if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("%v: %v", h, err)
			}
		}
	})
}

// A holder that cannot reach the backend notices a loss later, and Lose does not wait for it.
func TestLoseDoesNotWaitForWhoCannotNotice(t *testing.T) {
	for name, fault := range map[string]struct {
		inject, end func(*holdfasttest.Process)
	}{
		"paused":  {(*holdfasttest.Process).Pause, (*holdfasttest.Process).Resume},
		"failing": {(*holdfasttest.Process).Fail, (*holdfasttest.Process).Heal},
		"hanging": {(*holdfasttest.Process).Hang, (*holdfasttest.Process).Heal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := holdfasttest.New(t)
				a := b.Process("A")
				h := lock(t, a.Client())
				fault.inject(a)
				b.Lose("job")
				time.Sleep(5 * time.Second)
				if h.Err() != nil {
					t.Error("the holder noticed")
				}
				fault.end(a)
				start := time.Now()
				<-h.Context().Done()
				if waited := time.Since(start); waited > 10*time.Second { // until a renewal
					t.Errorf("the holder noticed after %v", waited)
				}
			})
		})
	}
}

// A pause lasts as long as the test says, even just before a renewal or the deadline. The process
// learns nothing in it, and all at its end: calls wait, and wake-ups are delivered.
func TestPauseAtAnyMoment(t *testing.T) {
	for _, at := range []time.Duration{0, 10*time.Second - 1, 10 * time.Second, 10*time.Second + time.Microsecond, 19 * time.Second} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := holdfasttest.New(t)
				a := b.Process("A")
				h := lock(t, a.Client())
				time.Sleep(at)
				a.Pause()
				inspected := make(chan error, 1)
				go func() { _, err := a.Client().Inspect(t.Context(), "job"); inspected <- err }()
				next := lock(t, b.Client())
				time.Sleep(time.Hour)
				if h.Err() != nil || h.Context().Err() != nil || h.Token() >= next.Token() {
					t.Errorf("in the pause: %v, tokens %d and %d", h.Err(), h.Token(), next.Token())
				}
				select {
				case err := <-inspected:
					t.Errorf("a call returned in the pause: %v", err)
				default:
				}
				a.Resume()
				if !errors.Is(h.Err(), holdfast.ErrLost) {
					t.Errorf("after the pause: %v", h.Err())
				}
				synctest.Wait()
				if h.Context().Err() == nil {
					t.Error("the context did not end at once")
				}
				if err := <-inspected; err == nil {
					t.Error("a call whose time limit was over succeeded")
				}
			})
		})
	}
}

// A process that is paused while a call is under way receives the answer after the pause.
func TestPauseDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		a := b.Process("A")
		a.Slow(time.Second)
		start := time.Now()
		time.AfterFunc(500*time.Millisecond, a.Pause)
		time.AfterFunc(time.Minute, a.Resume)
		if _, err := a.Client().Inspect(t.Context(), "job"); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want the answer after the pause", err, time.Since(start))
		}
	})
}

// A short pause costs nothing.
func TestShortPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		a := b.Process("A")
		h := lock(t, a.Client())
		for range 10 {
			a.Pause()
			time.Sleep(5 * time.Second)
			a.Resume()
			time.Sleep(time.Minute)
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A waiter whose process was paused or cut off while the lock was released gets it afterwards, at
// once.
func TestMissedWakeUps(t *testing.T) {
	for name, fault := range map[string]struct {
		inject, end func(b *holdfasttest.Backend, p *holdfasttest.Process)
	}{
		"paused": {func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Pause() },
			func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Resume() }},
		"cut off": {func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Hang() },
			func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Heal() }},
		"backend away": {func(b *holdfasttest.Backend, _ *holdfasttest.Process) { b.Fail() },
			func(b *holdfasttest.Backend, _ *holdfasttest.Process) { b.Heal() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := holdfasttest.New(t)
				a, c := b.Process("A"), b.Process("C")
				h := lock(t, a.Client())
				granted := make(chan *holdfast.Hold, 1)
				go func() { granted <- lock(t, c.Client()) }()
				time.Sleep(time.Second)
				fault.inject(b, c)
				released := make(chan error, 1)
				go func() { released <- h.Release(context.Background()) }()
				time.Sleep(time.Second)
				fault.end(b, c)
				start := time.Now()
				<-granted
				if waited := time.Since(start); waited > 4*time.Second {
					t.Errorf("granted after %v", waited)
				}
				if err := <-released; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The faults of one process do not affect another, and those of the backend affect all.
func TestFaultsAffectTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := holdfasttest.New(t)
		a, c := b.Process("A"), b.Process("C")
		try := func(p *holdfasttest.Process) error {
			_, err := p.Client().Inspect(t.Context(), "job")
			return err
		}
		a.Fail()
		if err := try(a); !errors.Is(err, holdfasttest.ErrUnavailable) || !strings.Contains(err.Error(), `"job"`) {
			t.Errorf("A: %v", err)
		}
		if err := try(c); err != nil {
			t.Errorf("C: %v", err)
		}
		a.Heal()
		b.FailFor(time.Minute)
		if try(a) == nil || try(c) == nil {
			t.Error("the backend did not fail")
		}
		b.Heal() // ends FailFor
		b.Fail()
		time.Sleep(2 * time.Minute)
		if try(a) == nil {
			t.Error("a FailFor that had ended has ended Fail")
		}
		b.FailFor(time.Minute)
		time.Sleep(time.Minute + 1)
		if err := errors.Join(try(a), try(c)); err != nil {
			t.Error(err)
		}
		b.Slow(time.Second)
		c.Slow(time.Second)
		for p, want := range map[*holdfasttest.Process]time.Duration{a: time.Second, c: 2 * time.Second} {
			start := time.Now()
			if err := try(p); err != nil || time.Since(start) != want {
				t.Errorf("%s: %v after %v, want %v", p.Name(), err, time.Since(start), want)
			}
		}
	})
}

// A killed process releases nothing, and its goroutines end.
func TestKillReleasesNothing(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := holdfasttest.New(t)
			a := b.Process("A")
			begun, done := false, make(chan error, 1)
			go func() {
				done <- a.Client().Do(t.Context(), "job", func(ctx context.Context) error {
					begun = true
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			a.AwaitHold("job")
			synctest.Wait() // orders begun for the race detector
			if !begun {
				t.Error("AwaitHold returned before the function began")
			}
			if paused {
				a.Pause()
			}
			a.Kill()
			if err := <-done; !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do: %v", err)
			}
			time.Sleep(20 * time.Second)
			if b.Holder("job") != "A" {
				t.Errorf("the holder is %q", b.Holder("job"))
			}
			time.Sleep(10 * time.Second)
			if b.Holder("job") != "" {
				t.Error("the lease did not expire")
			}
		})
	}
}

// recorder is a test whose failures are expected.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Output() io.Writer { return io.Discard }
func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Skipped() bool     { return false }
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Failed() bool      { r.mu.Lock(); defer r.mu.Unlock(); return len(r.failures) > 0 }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// run runs a test to its end and returns its failures.
func (r *recorder) run(test func()) []string {
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(r) {
				panic(got)
			}
		}()
		test()
	}()
	for _, fn := range r.cleanups {
		fn()
	}
	return r.failures
}

// Wrong use fails the test and says what is wrong.
func TestMisuse(t *testing.T) {
	for want, misuse := range map[string]func(b *holdfasttest.Backend, p *holdfasttest.Process){
		`Lose("job"): nobody holds the lock`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) { b.Lose("job") },
		`its holder "A" was killed`: func(b *holdfasttest.Backend, p *holdfasttest.Process) {
			_, _ = p.Client().TryLock(context.Background(), "job")
			p.Kill()
			b.Lose("job")
		},
		`LoseAtRenewal("job", 0): want a number of 1 or more`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) {
			b.LoseAtRenewal("job",
				0)
		},
		`LoseAtStep("job", -1): want a number of 1 or more`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) {
			b.LoseAtStep("job",
				-1)()
		},
		`LoseAtRenewal("job", 2): the lock was not lost, because it came only to number 1`: func(b *holdfasttest.Backend,
			p *holdfasttest.Process) {
			b.LoseAtRenewal("job", 2)
			_, _ = p.Client().TryLock(context.Background(), "job")
			time.Sleep(15 * time.Second)
		},
		`FailFor(0s): want a time greater than 0`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) { b.FailFor(0) },
		`Slow(-1s): want a time of 0 or more`:     func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Slow(-time.Second) },
		`Resume: process "A" is not paused`:       func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Resume() },
		`Pause: process "A" is paused`:            func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Pause(); p.Pause() },
		`Kill: process "A" was killed already`:    func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.Kill(); p.Kill() },
		`Process("A") has options, but exists`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) {
			b.Process("A",
				holdfast.WithTTL(time.Minute))
		},
		`process "B": holdfast: TTL -1s is invalid`: func(b *holdfasttest.Backend, _ *holdfasttest.Process) {
			b.Process("B",
				holdfast.WithTTL(-time.Second))
		},
		`StaleHold("job"): the lock must be free`: func(b *holdfasttest.Backend, p *holdfasttest.Process) {
			_, _ = p.Client().TryLock(context.Background(), "job")
			b.StaleHold("job")
		},
		`process "A" does not have the lock "job"`: func(_ *holdfasttest.Backend, p *holdfasttest.Process) { p.AwaitHold("job") },
		`its functions must return at the end of the test`: func(_ *holdfasttest.Backend, p *holdfasttest.Process) {
			go func() {
				_ = p.Client().Do(context.Background(), "job", func(context.Context) error { time.Sleep(time.Minute); return nil })
			}()
			p.AwaitHold("job")
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				failures := r.run(func() {
					b := holdfasttest.New(r)
					misuse(b, b.Process("A"))
				})
				if len(failures) != 1 || !strings.HasPrefix(failures[0], "holdfasttest: ") || !strings.Contains(failures[0], want) {
					t.Errorf("the failures are %q", failures)
				}
				time.Sleep(time.Minute) // work that did not return
			})
		})
	}
}

// A successor that only reads would leave the stale holder its lock.
func TestTakeOverByAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		failures := r.run(func() { holdfasttest.New(r, holdfast.WithShared()).StaleHold("job") })
		if len(failures) != 1 || !strings.Contains(failures[0], `TakeOver("job"): the options of New have WithShared`) {
			t.Errorf("the failures are %q", failures)
		}
	})
}

// A backend of real time in a bubble is misuse that would otherwise hang.
func TestNewOutsideOfTheBubble(t *testing.T) {
	r := &recorder{TB: t}
	failures := r.run(func() {
		b := holdfasttest.New(r)
		synctest.Test(t, func(*testing.T) {
			defer func() { _ = recover() }()
			b.Client()
		})
	})
	if len(failures) != 1 || !strings.Contains(failures[0], "call it inside") {
		t.Errorf("the failures are %q", failures)
	}
}

// Outside of a bubble, a hold counts that ends at once.
func TestAwaitHoldSeesShortHolds(t *testing.T) {
	p := holdfasttest.New(t).Process("A")
	ctx, cancel := context.WithCancel(t.Context())
	var holder sync.WaitGroup
	holder.Go(func() {
		for ctx.Err() == nil {
			h, err := p.Client().Lock(ctx, "job")
			if err == nil {
				err = h.Release(context.WithoutCancel(ctx))
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	if h := p.AwaitHold("job"); h.Name() != "job" {
		t.Errorf("the hold is of %q", h.Name())
	}
	cancel()
	holder.Wait()
}
