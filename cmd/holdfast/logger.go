package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// logger writes messages for people to standard error, one line each.
type logger struct {
	quiet, verbose bool

	mu sync.Mutex
	w  io.Writer
}

func newLogger(w io.Writer, quiet, verbose bool) *logger {
	return &logger{w: w, quiet: quiet, verbose: verbose}
}

// errorf always writes, infof unless --quiet is given, verbosef only with --verbose.
func (l *logger) errorf(format string, args ...any)   { l.write(true, format, args...) }
func (l *logger) infof(format string, args ...any)    { l.write(!l.quiet, format, args...) }
func (l *logger) verbosef(format string, args ...any) { l.write(l.verbose, format, args...) }

func (l *logger) write(enabled bool, format string, args ...any) {
	if !enabled {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "holdfast: %s\n", messageLine(fmt.Sprintf(format, args...)))
}

// messageLine makes a message that may repeat one of the library a line of the command.
func messageLine(message string) string {
	return oneLine(libraryPrefix.ReplaceAllString(message, "$1"))
}

// flush waits up to flushTimeout until the messages so far are written. It is needed only where a
// message has to come before something else.
func (l *logger) flush() {
	if a, ok := l.w.(*asyncWriter); ok {
		a.flush(flushTimeout)
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
