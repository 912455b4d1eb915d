package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/drivers/memory"
)

// Whatever way a hold or its context is printed, its lease's ID is not.
func TestHoldPrintsNoID(t *testing.T) {
	h := mustLock(t, newClient(t, memory.New()), "job")
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
