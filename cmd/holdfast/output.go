package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/text"
)

// reporter writes messages for a person, one line each.
type reporter struct {
	quiet, verbose bool

	mu sync.Mutex
	w  io.Writer
}

func newReporter(w io.Writer, quiet, verbose bool) *reporter {
	return &reporter{w: w, quiet: quiet, verbose: verbose}
}

// error is always written, info unless --quiet, detail only with --verbose.
func (r *reporter) error(format string, args ...any) { r.line(true, format, args...) }
func (r *reporter) info(format string, args ...any)  { r.line(!r.quiet, format, args...) }
func (r *reporter) detail(format string, args ...any) {
	r.line(r.verbose, format, args...)
}

func (r *reporter) line(wanted bool, format string, args ...any) {
	if !wanted {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	message := ownPrefix.ReplaceAllString(fmt.Sprintf(format, args...), "$1")
	fmt.Fprintf(r.w, "holdfast: %s\n", oneLine(message))
}

// oneLine makes a message safe to show: what a backend answers, and with it whoever may
// write there, must not control the reader's terminal or forge a line.
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

// flush waits for a moment until what was said is written. Only where a message has to
// come before something else is that needed.
func (r *reporter) flush(limit time.Duration) {
	if b, ok := r.w.(*backlog); ok {
		b.flush(limit)
	}
}

// ownPrefix is what the library puts before its errors, where they begin: each line
// here has it already.
var ownPrefix = regexp.MustCompile(`(^|[:;] |\n|\()(?:holdfast: )+`)

// writeJSON writes one value on one line.
func writeJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// lockJSON is a lock as scripts see it. Every field is always there; null means
// that the backend did not tell, or that there is none.
type lockJSON struct {
	Name        string     `json:"name"`
	State       string     `json:"state"` // "held", "free" or "unknown"
	Owner       *string    `json:"owner"` // of a free lock: the last one's
	Token       *uint64    `json:"token"`
	TTLMs       *int64     `json:"ttlMs"`       // milliseconds
	RemainingMs *int64     `json:"remainingMs"` // milliseconds, on the backend's clock
	AcquiredAt  *time.Time `json:"acquiredAt"`  // on the backend's clock
	RenewedAt   *time.Time `json:"renewedAt"`
	Broken      bool       `json:"broken"` // renewals are refused
	Data        []byte     `json:"data"`   // base64
}

func toJSON(r holdfast.Record) lockJSON {
	lock := lockJSON{Name: r.Name, State: r.State.String(), Owner: known(r.Owner), Token: known(r.Token),
		AcquiredAt: known(r.AcquiredAt), RenewedAt: known(r.RenewedAt), Broken: r.Broken, Data: r.Data}
	if r.TTL > 0 {
		lock.TTLMs = new(int64)
		*lock.TTLMs = r.TTL.Milliseconds()
	}
	if r.RemainingKnown {
		lock.RemainingMs = new(int64)
		*lock.RemainingMs = r.Remaining.Milliseconds()
	}
	return lock
}

// known is nil for the zero value, which in a Record means unknown.
func known[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// printable returns text from a backend as it is if that is safe to read, and
// quoted otherwise: whoever may write a lock must not write to the terminal of
// whoever looks at it.
func printable(s string) string {
	for _, r := range s {
		if r == unicode.ReplacementChar || r == '"' || r == ' ' || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// seconds rounds a duration to what a person wants to see.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second && d > -10*time.Second:
		d = d.Round(10 * time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return text.Duration(d)
}

// holderOf describes who holds a lock: owner, token, time left.
func holderOf(r holdfast.Record) string {
	who := "an owner that the backend does not name"
	if r.Owner != "" {
		who = strconv.Quote(r.Owner)
	}
	if r.Token == 0 && !r.RemainingKnown {
		return who
	}
	facts := ""
	if r.Token != 0 {
		facts = "token " + strconv.FormatUint(r.Token, 10)
	}
	if r.RemainingKnown {
		if facts != "" {
			facts += ", "
		}
		facts += seconds(r.Remaining) + " left unless renewed"
	}
	return who + " (" + facts + ")"
}
