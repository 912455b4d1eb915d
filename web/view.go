package web

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// row is a lock as the page gets it. It has no data and no lease ID.
type row struct {
	Name        string     `json:"name"`
	State       string     `json:"state"` // "held", "broken", "free" or "unknown"
	Owner       string     `json:"owner,omitempty"`
	Token       string     `json:"token,omitempty"` // as text: a number of JavaScript is too small
	TTLMs       int64      `json:"ttlMs,omitempty"`
	RemainingMs *int64     `json:"remainingMs,omitempty"` // when the answer was written
	AcquiredAt  *time.Time `json:"acquiredAt,omitempty"`
	RenewedAt   *time.Time `json:"renewedAt,omitempty"`
}

// rowOf describes a record that was read at a time.
func rowOf(r driver.Record, at time.Time) row {
	out := row{Name: r.Name, State: r.State.String(), Owner: r.Owner, TTLMs: r.TTL.Milliseconds()}
	if r.State == driver.StateHeld && r.Broken {
		out.State = "broken"
	}
	if r.Token != 0 {
		out.Token = strconv.FormatUint(r.Token, 10)
	}
	if r.RemainingKnown && r.State == driver.StateHeld {
		left := max(0, (r.Remaining - time.Since(at)).Milliseconds())
		out.RemainingMs = &left
	}
	if !r.AcquiredAt.IsZero() {
		out.AcquiredAt = &r.AcquiredAt
	}
	if !r.RenewedAt.IsZero() {
		out.RenewedAt = &r.RenewedAt
	}
	return out
}

// query says which rows to show.
type query struct {
	text  string // part of a name or an owner, in lower case
	state string
	sort  string
	desc  bool
	page  int // from 1
	size  int
}

const (
	defaultPageSize = 50
	maxPageSize     = 500
)

var (
	states = []string{"", "held", "broken", "free", "unknown"}
	orders = []string{"name", "state", "owner", "left", "renewed"}
)

func parseQuery(values url.Values) (query, error) {
	q := query{text: strings.ToLower(values.Get("q")), state: values.Get("state"), sort: cmp.Or(values.Get("sort"), "name"),
		desc: values.Get("desc") == "1", page: 1, size: defaultPageSize}
	if !slices.Contains(states, q.state) {
		return q, fmt.Errorf("state %q is invalid: must be one of held, broken, free and unknown", q.state)
	}
	if !slices.Contains(orders, q.sort) {
		return q, fmt.Errorf("sort %q is invalid: must be one of %s", q.sort, strings.Join(orders, ", "))
	}
	for field, to := range map[string]*int{"page": &q.page, "size": &q.size} {
		text := values.Get(field)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return q, fmt.Errorf("%s %q is invalid: must be a number from 1", field, text)
		}
		*to = n
	}
	q.size = min(q.size, maxPageSize)
	return q, nil
}

// view is a page of rows.
type view struct {
	AgeMs      int64          `json:"ageMs"` // since the backend answered
	Error      string         `json:"error,omitempty"`
	Total      int            `json:"total"`
	Matching   int            `json:"matching"`
	States     map[string]int `json:"states"` // how many of all are in each state
	Page       int            `json:"page"`
	Pages      int            `json:"pages"`
	Rows       []row          `json:"rows"`
	Unreadable []string       `json:"unreadable,omitempty"`
}

// maxUnreadable is how many unreadable records are named.
const maxUnreadable = 20

// view returns the rows of a page. Only they are converted: thousands of locks stay quick.
func (s *snapshot) view(q query) view {
	out := view{AgeMs: time.Since(s.at).Milliseconds(), Total: len(s.records), States: map[string]int{}, Rows: []row{},
		Unreadable: s.unreadable[:min(len(s.unreadable), maxUnreadable)]}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	matching := make([]*driver.Record, 0, len(s.records))
	for i := range s.records {
		r := &s.records[i]
		state := stateOf(r)
		out.States[state]++
		if (q.state == "" || q.state == state) && (q.text == "" || strings.Contains(strings.ToLower(r.Name), q.text) || strings.Contains(strings.ToLower(r.Owner), q.text)) {
			matching = append(matching, r)
		}
	}
	out.Matching = len(matching)
	out.Pages = max(1, (len(matching)+q.size-1)/q.size)
	out.Page = min(q.page, out.Pages)
	if q.sort != "name" || q.desc {
		slices.SortStableFunc(matching, func(a, b *driver.Record) int {
			order := compare(q.sort, a, b)
			if q.desc {
				return -order
			}
			return order
		})
	}
	for _, r := range matching[(out.Page-1)*q.size : min(out.Page*q.size, len(matching))] {
		out.Rows = append(out.Rows, rowOf(*r, s.at))
	}
	return out
}

func stateOf(r *driver.Record) string {
	if r.State == driver.StateHeld && r.Broken {
		return "broken"
	}
	return r.State.String()
}

func compare(by string, a, b *driver.Record) int {
	switch by {
	case "state":
		return strings.Compare(stateOf(a), stateOf(b))
	case "owner":
		return strings.Compare(a.Owner, b.Owner)
	case "left":
		return cmp.Compare(left(a), left(b))
	case "renewed":
		return a.RenewedAt.Compare(b.RenewedAt)
	default:
		return strings.Compare(a.Name, b.Name)
	}
}

// left sorts locks that are free, or whose time is unknown, behind those that are held.
func left(r *driver.Record) time.Duration {
	if r.State != driver.StateHeld || !r.RemainingKnown {
		return 1 << 62
	}
	return r.Remaining
}

// instance is a holder and what it holds.
type instance struct {
	Owner      string         `json:"owner"`
	Locks      []string       `json:"locks"` // the first of them by name, without partitions
	LocksHeld  int            `json:"locksHeld"`
	Partitions map[string]int `json:"partitions"` // how many of each group
}

// maxLocksShown is how many locks of an instance are named.
const maxLocksShown = 50

// instances returns the holders, in the order of their names.
func (s *snapshot) instances() []*instance {
	all := map[string]*instance{}
	out := []*instance{}
	for i := range s.records {
		r := &s.records[i]
		if r.State != driver.StateHeld {
			continue
		}
		at := all[r.Owner]
		if at == nil {
			at = &instance{Owner: r.Owner, Locks: []string{}, Partitions: map[string]int{}}
			all[r.Owner] = at
			out = append(out, at)
		}
		if group, ok := partitionGroup(r.Name); ok {
			if group != "" {
				at.Partitions[group]++
			}
			continue
		}
		at.LocksHeld++
		if len(at.Locks) < maxLocksShown {
			at.Locks = append(at.Locks, r.Name)
		}
	}
	slices.SortFunc(out, func(a, b *instance) int { return strings.Compare(a.Owner, b.Owner) })
	return out
}

// partitionGroup tells a lock of package partitions by its name. The group is "" for a lock that
// counts the members of a group or wakes them, which nobody looks for.
func partitionGroup(name string) (group string, ok bool) {
	at := strings.LastIndex(name, "/partition-")
	if at < 0 {
		return "", false
	}
	rest := name[at+len("/partition-"):]
	if rest == "bell" || strings.HasPrefix(rest, "member-") {
		return "", true
	}
	if _, err := strconv.ParseUint(rest, 10, 32); err != nil {
		return "", false
	}
	return name[:at], true
}
