package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/locktest"
)

// Whatever way a hold or its context is printed, its lease's ID is not.
func TestHoldPrintsNoID(t *testing.T) {
	h := locktest.MustLock(t, locktest.NewClient(t, memory.New()), "job")
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "hold", h, "ctx", h.Context(), "lease", h.Lease())
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "hold", h, "ctx", h.Context(), "lease", h.Lease())
	child := context.WithValue(h.Context(), h, h)
	for _, v := range []any{h, h.Context(), child, h.Lease(), struct{ H any }{h}, []any{h}} {
		fmt.Fprintf(&b, "%v %+v %#v %s %q\n", v, v, v, v, v)
	}
	if out := b.String(); strings.Contains(out, h.Lease().ID.Reveal()) || !strings.Contains(out, `hold of the lease of "job"`) {
		t.Errorf("printed:\n%s", out)
	}
}

// What is left until the loss and until the expiry; the clocks may differ by 0.1 % of the
// TTL meanwhile, so work must stop that much earlier.
func TestTimeLeftOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := locktest.MustLock(t, locktest.NewClient(t, memory.New()), "job")
		time.Sleep(4 * time.Second)
		if in, want := h.LostIn(), 21*time.Second; in != want {
			t.Errorf("lost in %v, want %v", in, want)
		}
		if in, want := h.ExpiresIn(), 26*time.Second-30*time.Millisecond; in != want {
			t.Errorf("expires in %v, want %v", in, want)
		}
	})
}
