package holdfast

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Names that were lost and are now held by other processes for good do not keep the log from
// noticing the end of later losses.
func TestLogNoticesTheEndOfALossAfterVeryMany(t *testing.T) {
	var out bytes.Buffer
	log := logTo(slog.New(slog.NewTextHandler(&out, nil)))
	for i := range lossesKept + 100 {
		log(Event{Type: EventLost, Name: fmt.Sprint("tenant-", i)})
	}
	log(Event{Type: EventLost, Name: "billing"})
	log(Event{Type: EventAcquired, Name: "billing"})
	if !strings.Contains(out.String(), "again after a loss") {
		t.Error("the lock is held again, and that is not logged at the default level")
	}
}
