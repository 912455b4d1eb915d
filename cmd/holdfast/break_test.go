package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

// unrecordedLocker has a lock whose holder has not written its token yet, as on Azure just after a grant, or is another
// program.
type unrecordedLocker struct {
	holdfast.Locker
	endless bool
	token   uint64 // of the holder, 0 if it is unknown
	free    bool
	ends    bool // it is broken already
	err     error
	broken  []driver.BreakTarget
}

func (l *unrecordedLocker) Inspect(context.Context, string) (driver.Record, error) {
	if l.free {
		return driver.Record{State: driver.StateFree, Token: l.token}, nil
	}
	return driver.Record{State: driver.StateHeld, Endless: l.endless, Token: l.token, Broken: l.ends}, nil
}

func (l *unrecordedLocker) Capabilities() driver.Capabilities {
	can := l.Locker.Capabilities()
	can.Breaker = l
	return can
}

func (l *unrecordedLocker) Break(_ context.Context, _ string, target driver.BreakTarget) error {
	l.broken = append(l.broken, target)
	return l.err
}

func (l *unrecordedLocker) BreakNow(ctx context.Context, name string, target driver.BreakTarget) error {
	return l.Break(ctx, name, target)
}

// runBreak runs the command on a Locker, without a terminal.
func runBreak(t *testing.T, l holdfast.Locker, b *breakCmd, shown io.Writer) error {
	t.Helper()
	client, err := holdfast.New(l)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{backend: "file:/locks", stdout: shown, stderr: shown, log: messages.NewLog(shown, false, false)}
	err = b.breakLock(t.Context(), a, client)
	a.log.Flush()
	if err := client.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return err
}

// Without its token the holder is broken only if the user says that it is unknown: a later one than the user was shown
// could be broken.
func TestBreakNeedsAToken(t *testing.T) {
	five := uint64(5)
	for _, now := range []bool{false, true} {
		for _, b := range []*breakCmd{{Name: "job", Yes: true, Now: now}, {Name: "job", Yes: true, Now: now, Token: &five}} {
			l := &unrecordedLocker{Locker: memory.New()}
			err := runBreak(t, l, b, io.Discard)
			var exit *exitcode.Error
			if !errors.As(err, &exit) || exit.Code != exitcode.Held || len(l.broken) > 0 {
				t.Errorf("%+v: error %v; broken: %v", b, err, l.broken)
			}
			if b.Token == nil && !strings.Contains(err.Error(), "--unknown") {
				t.Errorf("the error does not say how to break it: %v", err)
			}
		}
	}
}

// The holder that was shown is broken, and no later one: the backend is asked for its token. With --token another holder
// is left alone.
func TestBreakNamesTheHolderThatWasShown(t *testing.T) {
	six, seven := uint64(6), uint64(7)
	for _, now := range []bool{false, true} {
		for _, token := range []*uint64{nil, &seven, &six} {
			l := &unrecordedLocker{Locker: memory.New(), token: seven}
			err := runBreak(t, l, &breakCmd{Name: "job", Yes: true, Now: now, Token: token}, io.Discard)
			var exit *exitcode.Error
			if token == &six {
				if !errors.As(err, &exit) || exit.Code != exitcode.Held || len(l.broken) > 0 {
					t.Errorf("of another holder: error %v; broken: %v", err, l.broken)
				}
			} else if err != nil || !slices.Equal(l.broken, []driver.BreakTarget{driver.BreakToken(seven)}) {
				t.Errorf("error %v; broken: %v", err, l.broken)
			}
		}
	}
}

// An earlier break may be in the record although its outcome is unknown: the backend is asked again before the command reports
// that there is nothing to do. It is asked for the holder that was broken, and a later one is no error.
func TestBreakIsRepeated(t *testing.T) {
	unknown := errors.New("no standby has it")
	for _, l := range []*unrecordedLocker{{free: true}, {ends: true}} {
		l.Locker, l.token = memory.New(), 7
		for _, c := range []struct{ answer, want error }{{nil, nil}, {unknown, unknown}, {&driver.HeldError{}, nil}} {
			l.err, l.broken = c.answer, nil
			err := runBreak(t, l, &breakCmd{Name: "job", Yes: true}, io.Discard)
			if !errors.Is(err, c.want) || !slices.Equal(l.broken, []driver.BreakTarget{driver.BreakToken(7)}) {
				t.Errorf("%+v: error %v; broken: %v", c, err, l.broken)
			}
		}
	}
	if err := runBreak(t, memory.New(), &breakCmd{Name: "nobody's", Yes: true}, io.Discard); err != nil {
		t.Error(err)
	}
}

// The holder whose token is unknown can be broken, and no other one in its place.
func TestBreakUnknown(t *testing.T) {
	for _, c := range []struct {
		now, endless bool
		want         string
	}{{false, false, "free when its lease ends"}, {true, false, "it is free"}, {false, true, "it is free"}, {true, true, "it is free"}} {
		l := &unrecordedLocker{Locker: memory.New(), endless: c.endless}
		var log strings.Builder
		err := runBreak(t, l, &breakCmd{Name: "job", Yes: true, Now: c.now, Unknown: true}, &log)
		if err != nil || !slices.Equal(l.broken, []driver.BreakTarget{driver.BreakUnknown()}) || !strings.Contains(log.String(), c.want) {
			t.Errorf("%+v: %v, broken %v: %s", c, err, l.broken, log.String())
		}
	}
	store := memory.NewStore()
	holder := store.Locker()
	lease, err := holder.TryAcquire(t.Context(), driver.Request{Name: "job", ID: driver.NewLeaseID("one"), Owner: "one", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	err = runBreak(t, store.Locker(), &breakCmd{Name: "job", Yes: true, Now: true, Unknown: true}, io.Discard)
	var exit *exitcode.Error
	if !errors.As(err, &exit) || exit.Code != exitcode.Held || !strings.Contains(err.Error(), `held by "one"`) {
		t.Errorf("of a holder with a token: %v", err)
	}
	if _, err := holder.Renew(t.Context(), lease); err != nil {
		t.Errorf("a holder with a token was broken: %v", err)
	}
	if err := (&breakCmd{Name: "job", Token: &lease.Token, Unknown: true}).Validate(); err == nil {
		t.Error("--token and --unknown together are accepted")
	}
}

// The holder renews its lease between the question and the answer: the time left of before is no limit.
func TestBreakAfterARenewal(t *testing.T) {
	for _, c := range []struct {
		b         breakCmd
		readAgain bool // the record can be read after the break
		want      []string
	}{
		{breakCmd{}, true, []string{`broke "job": it becomes free in 1m`, " at the latest"}},
		{breakCmd{}, false, []string{`broke "job": it becomes free when its lease ends, within one TTL (1m)`}},
		{breakCmd{JSON: true}, true, []string{`"remainingMs":60000,`, `"broken":true`}},
		{breakCmd{JSON: true}, false, []string{`"remainingMs":null,`, `"broken":true`}},
	} {
		now := time.Now()
		store := memory.NewStore(memory.WithClock(func() time.Time { return now }))
		holder := store.Locker()
		req := driver.Request{Name: "job", ID: driver.NewLeaseID("one"), Owner: "one", TTL: time.Minute}
		lease, err := holder.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(50 * time.Second)
		broken := false
		l := driver.Intercept(store.Locker(), func(ctx context.Context, call driver.Call, next driver.Next) driver.Answer {
			switch {
			case call.Method == driver.MethodBreak:
				broken = true
				if _, err := holder.Renew(ctx, lease); err != nil {
					t.Error(err)
				}
			case call.Method == driver.MethodInspect && broken && !c.readAgain:
				return driver.Answer{Err: errors.New("no server")}
			}
			return next(ctx, call)
		})
		c.b.Name, c.b.Yes = "job", true
		var shown strings.Builder
		err = runBreak(t, l, &c.b, &shown)
		for _, want := range c.want {
			if err != nil || !strings.Contains(shown.String(), want) {
				t.Errorf("%+v: error %v, without %q: %s", c, err, want, shown.String())
			}
		}
	}
}

// What people read of a lease that never ends: that, and how the lock becomes free.
func TestEndlessLeaseIsShown(t *testing.T) {
	r := holdfast.Record{Name: "job", State: driver.StateHeld, Endless: true}
	var status, table strings.Builder
	if err := (describe.Lock{Record: r}).WriteStatus(&status, "azblob://a/c"); err != nil {
		t.Fatal(err)
	}
	write, flush := describe.Table(&table)
	if err := errors.Join(write(r), flush()); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		text string
		want []string
	}{
		"status":         {status.String(), []string{"never ends", "another program or a person took it", "holdfast break job --unknown"}},
		"ls":             {table.String(), []string{"never ends"}},
		"break":          {describe.BreakEffect(r, false), []string{"FREE AT ONCE", "never ends"}},
		"holder":         {describe.Holder(r), []string{"an unknown owner (its lease never ends)"}},
		"of another one": {(&driver.HeldError{Record: r}).Error(), []string{"its lease never ends"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s does not have %q:\n%s", what, want, c.text)
			}
		}
	}
}
