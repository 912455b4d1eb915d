package memory

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// subjectStore is what [Locker.Check] examines.
const subjectStore = "store"

// Check implements [driver.Checker]. There is nothing that could be set up wrong.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	if err := l.do(ctx, "check", "", nil, func(*Store) error { return nil }); err != nil {
		return err
	}
	// The store is not locked: report may use it.
	report(driver.Finding{Subject: subjectStore, Detail: "the memory of this process, which no other process sees"})
	return nil
}

// RemoveProbe implements [driver.Checker].
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.do(ctx, "remove", name, driver.ValidateName(name, limits), func(s *Store) error {
		if lock := s.lock(name); !lock.Held(s.moment()) && len(lock.Data) == 0 {
			s.remove(name)
		}
		return nil
	})
}
