package lockcontext

import (
	"context"
	"testing"
)

func TestDeliberate(t *testing.T) {
	_ = client.Do(t.Context(), "a", func(context.Context) error { return work(context.Background()) })
}
