//go:build unix

package child

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	if IsGuardian() {
		RunGuardian(writeReleased)
		return
	}
	// The guardian must not inherit that a signal is ignored: nohup ignores SIGHUP, and a shell ignores SIGINT and SIGQUIT for a job in
	// the background.
	for _, sig := range signals.Ending {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// writeReleased stands for the release of a lock: it writes the file that the data name.
func writeReleased(_ context.Context, data []byte) {
	_ = os.WriteFile(string(data), []byte("released"), 0o600)
}

// writerFunc is a writer that calls a function.
type writerFunc func([]byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}

// mayStart allows the start of a command.
func mayStart() error { return nil }
