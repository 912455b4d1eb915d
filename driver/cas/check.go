package cas

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// What Check examines.
const (
	subjectStore  = "store"
	subjectWrites = "conditional writes"
	subjectRace   = "race of writes"
)

// Check implements [driver.Checker]. It reads one value. A driver with checks of its own calls it first: it says whether the
// store can be trusted.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	var findings []driver.Finding
	err := l.call(ctx, "check", "", nil, func(ctx context.Context) error {
		v, err := l.get(ctx, ProbeKey)
		if err != nil {
			findings = []driver.Finding{{Subject: subjectStore, Level: driver.LevelWrong, Detail: "a value cannot be read: " + driver.ErrorText(err),
				Remedy: "make sure that the store is reachable and that this program may read it"}}
			return ctx.Err()
		}
		findings = []driver.Finding{{Subject: subjectStore, Detail: "it answers"}, readTrials(v.Data).finding(l.config)}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range findings {
		report(f)
	}
	return nil
}

// MissingStore is for [driver.MissingStore]. A store that can be opened is not missing, but it may not answer, and nothing else shows that
// to a program that waits for changes.
func (l *Locker) MissingStore(ctx context.Context) (string, error) {
	return "", l.call(ctx, "look for the store", "", nil, func(ctx context.Context) error {
		_, err := l.get(ctx, ProbeKey)
		return err
	})
}

// finding says what programs have found so far about the conditional writes of the store.
func (t trials) finding(c Config) driver.Finding {
	f := driver.Finding{Subject: subjectWrites}
	switch {
	case t.Verdict != nil:
		f.Level, f.Detail = driver.LevelWrong, driver.ErrorText(c.refusal(t.Verdict))
		f.Remedy = "Stop all programs. " + upperFirst(c.clearing()) + "."
	case t.Rounds == 0:
		f.Level, f.Detail = driver.LevelUnchecked, "no program has tried them so far"
	default:
		f.Detail = fmt.Sprintf("of writes that raced, one was done at a time, in %d rounds of all programs", t.Rounds)
	}
	return f
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// CheckWrites is for [driver.CheckWrites]: it races conditional writes, often enough to find a store that lets two win in a tenth
// of the rounds.
func (l *Locker) CheckWrites(ctx context.Context, report func(driver.Finding)) error {
	raced := driver.Finding{Subject: subjectRace,
		Detail: fmt.Sprintf("in %d rounds of %d writes, one was done at a time", checkRounds, racers)}
	for range checkRounds {
		var found error
		err := l.call(ctx, "check", "", nil, func(ctx context.Context) error {
			_, found = l.round(ctx)
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		if found == nil {
			continue
		}
		raced.Level, raced.Detail, raced.Remedy = driver.LevelWrong, driver.ErrorText(found), "Correct what the message names, and check again."
		if v := l.unsafe.Load(); v != nil {
			raced.Remedy = "Stop all programs. " + upperFirst(l.config.clearing()) + "."
		}
		break
	}
	report(raced)
	return nil
}

// checkRounds is how many rounds CheckWrites makes.
const checkRounds = 50

// RemoveProbe implements [driver.Checker]. It keeps the token: the value is marked as removed.
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.call(ctx, "remove", name, driver.ValidateName(name, l.config.Info.Limits), func(ctx context.Context) error {
		return l.change(ctx, name, nil, func(s *state) (bool, error) {
			if s.version == "" || s.Token == 0 || s.Removed || s.Held(s.now) || len(s.Data) > 0 {
				return false, nil
			}
			s.remove()
			return true, nil
		})
	})
}
