package gocronlock

import "context"

type (
	Lock interface {
		Unlock(ctx context.Context) error
	}
	Locker[L Lock] struct{}
	Elector        struct{}
)

func (l *Locker[L]) Task(name string, fn func(ctx context.Context) error) func(ctx context.Context) error {
	return fn
}
func (e *Elector) Task(fn func(ctx context.Context) error) func(ctx context.Context) error { return fn }
