package locktest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Clock stands still until a test moves it. Its methods are safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the present time.
func NewClock() *Clock { return &Clock{now: time.Now()} }

// Now is the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock, also back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Log is what a logger or a program has written. Its methods are safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text string
}

// NewLog returns a logger, and its log.
func NewLog() (*slog.Logger, *Log) {
	log := &Log{}
	return slog.New(slog.NewTextHandler(log, nil)), log
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += string(p)
	return len(p), nil
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// Take returns what was written since its last call.
func (l *Log) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text
	l.text = ""
	return text
}

// Await waits until a text was written.
func (l *Log) Await(tb testing.TB, text string) {
	tb.Helper()
	for end := time.Now().Add(waitLimit); !strings.Contains(l.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%q was not written within %v, but:\n%s", text, waitLimit, l)
		}
	}
}
