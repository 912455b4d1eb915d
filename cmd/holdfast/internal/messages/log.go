// Package messages writes messages for people to standard error: each is one line that is safe to show, and none waits for a reader.
package messages

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// flushTimeout bounds the wait for messages where their order matters.
const flushTimeout = 100 * time.Millisecond

// Log writes messages, one line each.
type Log struct {
	quiet, verbose bool

	mu sync.Mutex
	w  io.Writer
}

// NewLog makes a Log as --quiet and --verbose say.
func NewLog(w io.Writer, quiet, verbose bool) *Log {
	return &Log{w: w, quiet: quiet, verbose: verbose}
}

// Errorf always writes.
func (l *Log) Errorf(format string, args ...any) { l.write(true, format, args...) }

// Infof writes unless --quiet is given.
func (l *Log) Infof(format string, args ...any) { l.write(!l.quiet, format, args...) }

// Verbosef writes only with --verbose.
func (l *Log) Verbosef(format string, args ...any) { l.write(l.verbose, format, args...) }

// Quiet reports whether --quiet is given.
func (l *Log) Quiet() bool { return l.quiet }

func (l *Log) write(enabled bool, format string, args ...any) {
	if !enabled {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "holdfast: %s\n", Line(fmt.Sprintf(format, args...)))
}

// Line makes a message that may repeat one of the library a line of the command.
func Line(message string) string {
	return oneLine(libraryPrefix.ReplaceAllString(message, "$1"))
}

// Flush waits up to flushTimeout until the messages so far are written. It is needed only where a
// message has to come before something else.
func (l *Log) Flush() {
	if a, ok := l.w.(*Writer); ok {
		a.Flush(flushTimeout)
	}
}

// libraryPrefix is the prefix of the library's errors. Every line of the command begins
// with it already.
var libraryPrefix = regexp.MustCompile(`(^|[:;] |\n|\()(?:holdfast: )+`)

// oneLine makes a message safe to show. Text from a backend, and from anybody who may write
// there, must not control the reader's terminal or forge a line.
func oneLine(message string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(strings.TrimSpace(message), "\n", "; ") {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
