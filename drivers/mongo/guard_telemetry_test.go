package mongo

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
)

// guardHook records the guards that have ended.
type guardHook struct {
	telemetry.Ignore
	ops  []telemetry.Operation
	errs []error
}

func (h *guardHook) End(_ context.Context, op telemetry.Operation, _ time.Duration, err error) {
	h.ops, h.errs = append(h.ops, op), append(h.errs, err)
}

// Do reports to the hook of the hold, also a refusal.
func TestGuardReportsToTheHook(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1")) // it connects with the first command
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background()) //nolint:errcheck // it never connected
	db, hook := client.Database("app"), &guardHook{}
	ctx, end := context.WithCancelCause(context.WithValue(t.Context(), telemetry.ContextKey{}, hook))
	end(driver.ErrLost)
	lease := driver.Lease{Name: "job", Token: 7, TTL: time.Minute}
	err = newGuard(db.Collection("locks"), db, time.Second).Do(t.Context(), testHold{lease: lease, ctx: ctx}, func(context.Context) error { return nil })
	want := telemetry.Operation{Kind: telemetry.Guard, Name: "job", Token: 7, Backend: "mongodb", Method: "guard"}
	if !errors.Is(err, driver.ErrLost) || len(hook.ops) != 1 || hook.ops[0] != want || !errors.Is(hook.errs[0], driver.ErrLost) {
		t.Errorf("Do returned %v, the hook got %+v, %v", err, hook.ops, hook.errs)
	}
}
