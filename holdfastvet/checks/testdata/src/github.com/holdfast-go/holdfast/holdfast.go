// Package holdfast has the declarations of the library that the checks know.
package holdfast

import (
	"context"
	"errors"
	"time"
)

type (
	Client            struct{}
	Hold              struct{}
	LeaderAwareRunner struct{}
	Locker            interface {
		Close(ctx context.Context) error
	}
	Lease        struct{ Token uint64 }
	Event        struct{ Name string }
	Option       func()
	ClientOption any
	RunnerOption any
)

var (
	ErrHeld = errors.New("held")
	ErrLost = errors.New("lost")
)

func New(locker Locker, opts ...ClientOption) (*Client, error)                    { return nil, nil }
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) { return nil, nil }
func TokenFromContext(ctx context.Context) (uint64, bool)                         { return 0, false }
func HoldFromContext(ctx context.Context) (*Hold, bool)                           { return nil, false }
func Heartbeat(ctx context.Context)                                               {}
func WithObserver(fn func(Event)) Option                                          { return nil }
func WithOverrunHook(fn func(Event)) Option                                       { return nil }
func WithSlots(n int) Option                                                      { return nil }
func WithHealthCheck(every time.Duration, fn func(ctx context.Context) error) RunnerOption {
	return nil
}
func NewLeaderAwareRunner(client *Client, name string, opts ...RunnerOption) (*LeaderAwareRunner, error) {
	return nil, nil
}

func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return nil
}
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return nil
}
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return nil, nil
}
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return nil, nil
}
func (c *Client) DoAll(ctx context.Context, names []string, fn func(ctx context.Context) error, opts ...Option) error {
	return nil
}
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*MultiHold, error) {
	return nil, nil
}
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*MultiHold, error) {
	return nil, nil
}
func (c *Client) Shutdown(ctx context.Context) error { return nil }
func (c *Client) Locker() Locker                     { return nil }

func (h *Hold) Context() context.Context                         { return nil }
func (h *Hold) Err() error                                       { return nil }
func (h *Hold) Lease() Lease                                     { return Lease{} }
func (h *Hold) Name() string                                     { return "" }
func (h *Hold) Token() uint64                                    { return 0 }
func (h *Hold) Release(ctx context.Context) error                { return nil }
func (h *Hold) WriteData(ctx context.Context, data []byte) error { return nil }
func (h *Hold) UpdateData(ctx context.Context, update func(old []byte) ([]byte, error)) error {
	return nil
}

func (r *LeaderAwareRunner) Run(ctx context.Context, task func(ctx context.Context) error) error {
	return nil
}
func (r *LeaderAwareRunner) RunTaskOnLeader(ctx context.Context, task func(ctx context.Context) error) (ran bool, err error) {
	return false, nil
}
func (r *LeaderAwareRunner) StepDown(ctx context.Context) error { return nil }
func (r *LeaderAwareRunner) Close(ctx context.Context) error    { return nil }

type MultiHold struct{}
