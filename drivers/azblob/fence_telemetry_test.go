package azblob

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// fenceHook records the fences that have ended.
type fenceHook struct {
	telemetry.Ignore
	ops  []telemetry.Operation
	errs []error
}

func (h *fenceHook) End(_ context.Context, op telemetry.Operation, _ time.Duration, err error) {
	h.ops, h.errs = append(h.ops, op), append(h.errs, err)
}

// NewFence reports to the hook of the hold from which its context descends.
func TestFenceReportsToTheHook(t *testing.T) {
	hook := &fenceHook{}
	_, err := NewFence(context.WithValue(t.Context(), telemetry.ContextKey{}, hook), nil, 0)
	want := telemetry.Operation{Kind: telemetry.Guard, Backend: "azblob", Method: "fence"}
	if !errors.Is(err, driver.ErrInvalid) || len(hook.ops) != 1 || hook.ops[0] != want || !errors.Is(hook.errs[0], driver.ErrInvalid) {
		t.Errorf("NewFence returned %v, the hook got %+v, %v", err, hook.ops, hook.errs)
	}
}
