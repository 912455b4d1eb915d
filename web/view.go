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
	"github.com/holdfast-go/holdfast/internal/lockview"
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
	History     []tenure   `json:"history,omitempty"` // of the lock that is read alone
}

// tenure is a past holder as the page gets it.
type tenure struct {
	Owner string    `json:"owner,omitempty"`
	Token string    `json:"token"`
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	End   string    `json:"end"`
}

// rowOf describes a record that was read at a time.
func rowOf(r driver.Record, at time.Time) row {
	out := row{Name: r.Name, State: lockview.State(&r), Owner: r.Owner, TTLMs: r.TTL.Milliseconds()}
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
	for _, t := range r.History {
		out.History = append(out.History, tenure{t.Owner, strconv.FormatUint(t.Token, 10), t.From, t.Until, t.End.String()})
	}
	return out
}

// query says which rows to show.
type query struct {
	lockview.Selection
	page int // from 1
	size int
}

const (
	defaultPageSize = 50
	maxPageSize     = 500
)

func parseQuery(values url.Values) (query, error) {
	q := query{page: 1, size: defaultPageSize, Selection: lockview.Selection{Text: values.Get("q"), State: values.Get("state"),
		Sort: cmp.Or(values.Get("sort"), "name"), Desc: values.Get("desc") == "1"}}
	if q.State != "" && !slices.Contains(lockview.States, q.State) {
		return q, fmt.Errorf("state %q is invalid: must be one of %s", q.State, strings.Join(lockview.States, ", "))
	}
	if !slices.Contains(lockview.Orders, q.Sort) {
		return q, fmt.Errorf("sort %q is invalid: must be one of %s", q.Sort, strings.Join(lockview.Orders, ", "))
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

// viewOf returns the rows of a page. Only they are converted: thousands of locks stay quick.
func viewOf(s *lockview.Snapshot, q query) view {
	matching := s.Select(q.Selection)
	pages := max(1, (len(matching)+q.size-1)/q.size)
	out := view{AgeMs: time.Since(s.At).Milliseconds(), Error: errorText(s.Err), Total: len(s.Records), Matching: len(matching),
		States: s.Count(), Page: min(q.page, pages), Pages: pages, Rows: []row{},
		Unreadable: s.Unreadable[:min(len(s.Unreadable), maxUnreadable)]}
	for _, r := range matching[(out.Page-1)*q.size : min(out.Page*q.size, len(matching))] {
		out.Rows = append(out.Rows, rowOf(*r, s.At))
	}
	return out
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

// instancesOf returns the holders, in the order of their names.
func instancesOf(s *lockview.Snapshot) []*instance {
	all := map[string]*instance{}
	out := []*instance{}
	for i := range s.Records {
		r := &s.Records[i]
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
