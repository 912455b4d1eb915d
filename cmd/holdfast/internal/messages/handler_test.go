package messages

import (
	"bytes"
	"log/slog"
	"testing"
	"time"
)

// What drivers log looks like what the command itself writes. With --quiet only warnings are left.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	for _, quiet := range []bool{false, true} {
		log := slog.New(NewLog(&out, quiet, true).Handler()).With("backend", "mongodb")
		log.Debug("holdfast: too much")
		log.Info("holdfast: there was no collection", "collection", "app.locks")
		log.WithGroup("g").Warn("holdfast: no change stream", "error", "holdfast: it\nfailed", "after", time.Second, slog.Group("h", "i", ""))
		log.Error("plain")
	}
	const warn = `holdfast: no change stream (backend=mongodb g.error="holdfast: it\nfailed" g.after=1s g.h.i="")` + "\n" +
		"holdfast: plain (backend=mongodb)\n"
	const want = "holdfast: there was no collection (backend=mongodb collection=app.locks)\n" + warn + warn
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
