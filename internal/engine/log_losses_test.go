package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/event"
)

// Very many names that were lost, and are now held by other processes, do not prevent the log from
// showing that a later loss has ended.
func TestEndOfALossIsLoggedAfterVeryManyLosses(t *testing.T) {
	var out bytes.Buffer
	log := logTo(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range maxLostNames + 100 {
		log(event.Event{Type: event.Lost, Name: fmt.Sprint("tenant-", i)})
	}
	log(event.Event{Type: event.Lost, Name: "billing"})
	log(event.Event{Type: event.Acquired, Name: "billing"})
	if !strings.Contains(out.String(), "again after a loss") {
		t.Error("the lock is held again, and that is not logged at the default level")
	}
}
