package driver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The number of past holders that a driver keeps with a lock: the default, and the most.
const (
	DefaultHistory = 8
	MaxHistory     = 32
)

// ParamHistory is the URL parameter with which drivers set the number of past holders that they keep.
const ParamHistory = "history"

// Tenure is a past holder of a lock. See [Record.History].
type Tenure struct {
	Owner string
	Token uint64
	// From is when the lock was granted, by the backend's clock.
	From time.Time
	// Until is when the tenure ended: when the lock was released, freed or taken over, or
	// when its lease expired. It is zero if it is unknown. The tenure then ended before the
	// next grant.
	Until time.Time
	End   End
	// Mode is how the lock was held. Tenures of [Shared] holders overlap, and are in the order of their tokens.
	Mode Mode
}

// MarshalJSON leaves out what is unknown:
//
//	{"owner":"host/1","token":7,"from":"2026-01-02T15:04:05Z","until":"2026-01-02T15:04:25Z","end":"released"}
//
// The tenure of a Shared holder has "mode":"shared", too.
func (t Tenure) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Owner string    `json:"owner,omitempty"`
		Token uint64    `json:"token,omitempty"`
		From  time.Time `json:"from,omitzero"`
		Until time.Time `json:"until,omitzero"`
		End   string    `json:"end"`
		Mode  string    `json:"mode,omitempty"`
	}{t.Owner, t.Token, t.From, t.Until, t.End.String(), t.modeText()})
}

// modeText is the mode, if it is not the usual one.
func (t Tenure) modeText() string {
	if t.Mode == Exclusive {
		return ""
	}
	return t.Mode.String()
}

// End says how a tenure ended. Its numbers may change, its texts do not.
type End uint8

// The ends of a tenure.
const (
	// EndUnknown: the backend does not report it.
	EndUnknown End = iota
	EndReleased
	// EndHandedOver to a waiter of the same process: older versions wrote it.
	EndHandedOver
	// EndExpired: the lease ran out.
	EndExpired
	// EndTakenOver by a waiter, before the lease had run out; see [Request.Replace].
	EndTakenOver
	// EndBroken: the holder's renewals were refused; see [Breaker]. Its lease ran out, or it released the lock.
	EndBroken
	// EndFreed at once, by BreakNow of a [Breaker].
	EndFreed
)

var (
	endTexts   = [...]string{"unknown", "released", "handed over", "expired", "taken over", "broken", "freed"}
	endLetters = "?rhxtbf" // in the same order
	// sharedLetters are those of Shared holders. Programs that do not know them read EndUnknown.
	sharedLetters = "!RHXTBF"
)

// String returns "released", "handed over", "expired", "taken over", "broken", "freed" or "unknown".
func (e End) String() string {
	if int(e) < len(endTexts) {
		return endTexts[e]
	}
	return endTexts[EndUnknown]
}

// ValidateHistory checks a number of past holders. The error is an *[InvalidError] that names the field.
func ValidateHistory(field string, n int) error {
	if n < 0 || n > MaxHistory {
		return Invalid(field, strconv.Itoa(n), historyRule)
	}
	return nil
}

var historyRule = fmt.Sprintf("a number of past holders from 0 to %d", MaxHistory)

// HistoryParam reads the URL parameter [ParamHistory]. Without it, n is [DefaultHistory].
func HistoryParam(query url.Values) (n int, err error) {
	if !query.Has(ParamHistory) {
		return DefaultHistory, nil
	}
	const field = "URL parameter " + ParamHistory
	value := query.Get(ParamHistory)
	if n, err = strconv.Atoi(value); err != nil {
		shown := fmt.Sprintf("%.40q", value)
		if strings.Contains(value, "@") {
			shown = "with an @" // the end of a password that contains an unescaped question mark
		}
		return 0, Invalid(field, shown, historyRule)
	}
	return n, ValidateHistory(field, n)
}

// maxTenureOwner is the longest owner of a tenure in a text, in bytes: that of a Request.
const maxTenureOwner = 1024

// FormatHistory writes tenures as one line of ASCII letters, digits and signs, in their order. It is
// for stores that keep text. Times are in milliseconds. Numbers have the base 36, and each time is the
// difference to the number before it: most tokens are times.
func FormatHistory(history []Tenure) string {
	var b []byte
	for i, t := range history {
		if i > 0 {
			b = append(b, ',')
		}
		end, letters := t.End, endLetters
		if int(end) >= len(endLetters) {
			end = EndUnknown
		}
		if t.Mode == Shared {
			letters = sharedLetters
		}
		last := int64(t.Token)
		b = strconv.AppendUint(b, t.Token, 36)
		for _, at := range []time.Time{t.From, t.Until} {
			if b = append(b, ';'); !at.IsZero() {
				b = strconv.AppendInt(b, at.UnixMilli()-last, 36)
				last = at.UnixMilli()
			}
		}
		b = append(b, ';', letters[end], ';')
		b = append(b, url.PathEscape(t.Owner)...)
	}
	return string(b)
}

// ParseHistory reads what FormatHistory has written. It leaves out tenures that are damaged, since
// nothing depends on a history, and returns the last MaxHistory at most.
func ParseHistory(text string) []Tenure {
	var all []Tenure
	for part := range strings.SplitSeq(text, ",") {
		if t, ok := parseTenure(part); ok {
			all = append(all, t)
		}
	}
	return all[max(0, len(all)-MaxHistory):]
}

func parseTenure(text string) (t Tenure, ok bool) {
	fields := strings.Split(text, ";")
	if len(fields) != 5 {
		return t, false
	}
	token, errToken := strconv.ParseUint(fields[0], 36, 64)
	last := int64(token)
	from, errFrom := parseMillis(fields[1], &last)
	until, errUntil := parseMillis(fields[2], &last)
	owner, errOwner := url.PathUnescape(fields[4])
	if cmp.Or(errToken, errFrom, errUntil, errOwner) != nil || token == 0 || !utf8.ValidString(owner) || len(owner) > maxTenureOwner {
		return t, false
	}
	t = Tenure{Owner: owner, Token: token, From: from, Until: until}
	if len(fields[3]) == 1 {
		if i := strings.Index(sharedLetters, fields[3]); i >= 0 {
			t.End, t.Mode = End(i), Shared
		} else {
			t.End = End(max(strings.Index(endLetters, fields[3]), 0))
		}
	}
	return t, true
}

var errYear = errors.New("the year is out of range") // RFC 3339 has those from 0 to 9999

func parseMillis(text string, last *int64) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 36, 64)
	*last += ms
	t := time.UnixMilli(*last).UTC()
	if err == nil && (t.Year() < 0 || t.Year() > 9999) {
		err = errYear
	}
	return t, err
}
