package describe

import (
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
)

// ExplainJSON is LockJSON with what explain adds.
type ExplainJSON struct {
	StatusJSON
	ReadAt        *time.Time    `json:"readAt"`        // the backend's clock
	ClockOffsetMs *float64      `json:"clockOffsetMs"` // the backend's clock less this machine's
	ClockErrorMs  *float64      `json:"clockErrorMs"`  // how far the offset may be off
	Waiters       *int          `json:"waiters"`
	History       []tenureJSON  `json:"history"` // the latest first
	Explanation   []sectionJSON `json:"explanation"`
}

type tenureJSON struct {
	Owner *string    `json:"owner"`
	Token *uint64    `json:"token"`
	From  *time.Time `json:"from"`
	Until *time.Time `json:"until"`
	End   string     `json:"end"`  // as driver.End
	Mode  string     `json:"mode"` // "exclusive" or "shared"
}

type sectionJSON struct {
	About     string   `json:"about"`
	Sentences []string `json:"sentences"`
	Command   string   `json:"command,omitempty"` // that the last sentence speaks of
}

// JSON is the JSON form of an explanation.
func (x *Explanation) JSON() ExplainJSON {
	out := ExplainJSON{StatusJSON: x.Lock.JSON(), ReadAt: format.NilIfZero(x.ReadAt), History: []tenureJSON{}}
	if !x.ReadAt.IsZero() {
		ahead, off := milliseconds(x.ahead), milliseconds(x.clockError)
		out.ClockOffsetMs, out.ClockErrorMs = &ahead, &off
	}
	if x.Can.Queue != nil {
		out.Waiters = &x.Waiters
	}
	for _, t := range x.History {
		out.History = append(out.History, tenureJSON{format.NilIfZero(t.Owner), format.NilIfZero(t.Token), format.NilIfZero(t.From),
			format.NilIfZero(t.Until), t.End.String(), t.Mode.String()})
	}
	for _, s := range x.sections() {
		out.Explanation = append(out.Explanation, sectionJSON{s.heading, s.sentences, s.command})
	}
	return out
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}
