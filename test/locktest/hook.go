package locktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// Hook is a telemetry.Hook that records what it is notified of, in words. Its contexts have the words of
// the operations around them under its key. It does not embed telemetry.Ignore: a method that it does not record must not compile.
type Hook struct {
	mu    sync.Mutex
	lines []string
	open  map[telemetry.Kind]int // operations that have begun and not ended
}

type hookKey struct{}

// Option is for a Client.
func (h *Hook) Option() holdfast.ClientOption { return holdfast.WithHook(h) }

// words describe an operation.
func words(op telemetry.Operation) string {
	kind := [...]string{"", "acquire", "hold", "release", "guard", "call"}[op.Kind]
	text := fmt.Sprintf("%s %s", kind, op.Name)
	if op.Kind == telemetry.Call {
		text = fmt.Sprintf("call %s %s of %d", op.Backend, op.Method, op.Locks)
	}
	if op.Role != telemetry.Plain {
		text += " as " + [...]string{"", "leader", "managed", "partition", "internal"}[op.Role]
	}
	return text
}

func (h *Hook) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

// Begin records an operation and the one around it.
func (h *Hook) Begin(ctx context.Context, op telemetry.Operation) context.Context {
	outer, _ := ctx.Value(hookKey{}).(string)
	if outer != "" {
		outer = " in " + outer
	}
	h.note("begin %s%s", words(op), outer)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[telemetry.Kind]int{}
	}
	h.open[op.Kind]++
	return context.WithValue(ctx, hookKey{}, words(op))
}

// End records the end of an operation. It panics if ctx is not that of Begin.
func (h *Hook) End(ctx context.Context, op telemetry.Operation, took time.Duration, err error) {
	if ctx.Value(hookKey{}) != words(op) {
		panic(fmt.Sprintf("the context of the end of %q is that of %v", words(op), ctx.Value(hookKey{})))
	}
	h.note("end %s after %s: %v", words(op), took, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[op.Kind]--
}

// Lost records a loss.
func (h *Hook) Lost(_ context.Context, op telemetry.Operation, held time.Duration, cause error) {
	h.note("lost %s after %s: %v", words(op), held, cause)
}

// Overrun records an overrun.
func (h *Hook) Overrun(_ context.Context, op telemetry.Operation) { h.note("overrun %s", words(op)) }

// Renewed records a renewal.
func (h *Hook) Renewed(_ context.Context, op telemetry.Operation, left time.Duration) {
	h.note("renewed %s, %s left", words(op), left)
}

// Dropped records an event that was dropped.
func (h *Hook) Dropped() { h.note("dropped") }

// Take returns what was recorded since the last call, without the calls of the backend unless calls is set.
func (h *Hook) Take(calls bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return slices.DeleteFunc(lines, func(l string) bool { return !calls && strings.Contains(l, " call ") })
}

// Open returns how many operations of a kind have begun and not ended.
func (h *Hook) Open(kind telemetry.Kind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open[kind]
}
