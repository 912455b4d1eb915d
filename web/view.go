package web

import (
	"cmp"
	"fmt"
	"iter"
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
	State       string     `json:"state"` // "held", "broken", "free" or "unknown"; of one lock also "absent" or "unreadable"
	Owner       string     `json:"owner,omitempty"`
	Token       string     `json:"token,omitempty"` // as text: a number of JavaScript is too small
	TTLMs       int64      `json:"ttlMs,omitempty"`
	RemainingMs *int64     `json:"remainingMs,omitempty"` // when the answer was written
	Endless     bool       `json:"endless,omitempty"`     // the lease never ends
	Lease       string     `json:"lease,omitempty"`       // what that means, of the lock that is read alone
	AcquiredAt  *time.Time `json:"acquiredAt,omitempty"`
	RenewedAt   *time.Time `json:"renewedAt,omitempty"`
	Waiters     int        `json:"waiters,omitempty"` // that have a position in the queue
	Sharing     int        `json:"sharing,omitempty"` // how many share the lock; Owner and Token are those of the latest
	Holders     []holder   `json:"holders,omitempty"` // of them the first, by token, of the lock that is read alone
	History     []tenure   `json:"history,omitempty"` // of the lock that is read alone
}

// holder is one of those who share a lock, as the page gets it.
type holder struct {
	Owner       string     `json:"owner,omitempty"`
	Token       string     `json:"token"`
	RemainingMs *int64     `json:"remainingMs,omitempty"`
	RenewedAt   *time.Time `json:"renewedAt,omitempty"`
	Broken      bool       `json:"broken,omitempty"`
}

// maxHolders is how many holders of a shared lock the page gets.
const maxHolders = 100

// tenure is a past holder as the page gets it.
type tenure struct {
	Owner string    `json:"owner,omitempty"`
	Token string    `json:"token"`
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	End   string    `json:"end"`            // in words
	Mode  string    `json:"mode,omitempty"` // "shared", or empty
}

// rowOf describes a record that was read at a time, without its holders and its history.
func rowOf(r *driver.Record, at time.Time) row {
	latest := lockview.Latest(*r)
	out := row{Name: r.Name, State: lockview.State(r), Owner: latest.Owner, TTLMs: r.TTL.Milliseconds(), Waiters: r.Waiters,
		Endless: r.Endless, Sharing: len(r.Holders)}
	if latest.Token != 0 {
		out.Token = strconv.FormatUint(latest.Token, 10)
	}
	if r.State == driver.StateHeld {
		out.RemainingMs = leftMs(r.Remaining, r.RemainingKnown, at)
	}
	if !r.AcquiredAt.IsZero() {
		out.AcquiredAt = &r.AcquiredAt
	}
	if !r.RenewedAt.IsZero() {
		out.RenewedAt = &r.RenewedAt
	}
	return out
}

// leftMs is the time left now of what was read at a time, or nil if it is not known.
func leftMs(left time.Duration, known bool, at time.Time) *int64 {
	if !known {
		return nil
	}
	now := lockview.Left(left, at).Milliseconds()
	return &now
}

// detailOf describes a record with its holders and its history.
func detailOf(r *driver.Record, at time.Time) row {
	out := rowOf(r, at)
	if r.Endless {
		out.Lease = lockview.Endless(*r)
	}
	for _, h := range r.Holders[:min(len(r.Holders), maxHolders)] {
		one := holder{Owner: h.Owner, Token: strconv.FormatUint(h.Token, 10), RemainingMs: leftMs(h.Remaining, h.RemainingKnown, at),
			Broken: h.Broken}
		if !h.RenewedAt.IsZero() {
			one.RenewedAt = &h.RenewedAt
		}
		out.Holders = append(out.Holders, one)
	}
	for _, t := range r.History {
		one := tenure{Owner: t.Owner, Token: strconv.FormatUint(t.Token, 10), From: t.From, Until: t.Until, End: lockview.Ended(t.End)}
		if t.Mode != driver.Exclusive {
			one.Mode = t.Mode.String()
		}
		out.History = append(out.History, one)
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

	shown []*driver.Record // the records of the rows
}

// maxUnreadable is how many unreadable records are named.
const maxUnreadable = 20

// viewOf returns the rows of a page. Only they are converted: thousands of locks stay quick.
func viewOf(s *lockview.Snapshot, q query) view {
	matching := s.Select(q.Selection)
	out := view{AgeMs: time.Since(s.At).Milliseconds(), Error: errorText(s.Err), Total: len(s.Records), Matching: len(matching),
		States: s.Count(), Rows: []row{}, Unreadable: s.Unreadable[:min(len(s.Unreadable), maxUnreadable)]}
	matching, out.Page, out.Pages = paged(matching, q)
	for _, r := range matching {
		out.Rows = append(out.Rows, rowOf(r, s.At))
	}
	out.shown = matching
	return out
}

// paged returns the part of a list on the wanted page, or on the last one if there are fewer.
func paged[T any](list []T, q query) (part []T, page, pages int) {
	pages = max(1, (len(list)+q.size-1)/q.size)
	page = min(q.page, pages)
	return list[(page-1)*q.size : min(page*q.size, len(list))], page, pages
}

// instance is a holder and what it holds.
type instance struct {
	Owner      string       `json:"owner"`
	Locks      []string     `json:"locks"` // the first of them by name, without partitions
	LocksHeld  int          `json:"locksHeld"`
	Partitions []*partition `json:"partitions"`

	groups map[string]*partition // of Partitions, by group
}

// partition is what an instance owns of one group.
type partition struct {
	Group   string `json:"group"`
	Count   int    `json:"count"`
	Numbers string `json:"numbers"` // such as "0–3, 7"

	numbers []uint64
}

// instancesView is a page of instances.
type instancesView struct {
	AgeMs     int64       `json:"ageMs,omitempty"` // since the backend answered
	Total     int         `json:"total"`
	Matching  int         `json:"matching"`
	Page      int         `json:"page"`
	Pages     int         `json:"pages"`
	Instances []*instance `json:"instances"`
}

const (
	// maxLocksShown is how many locks of an instance are named.
	maxLocksShown = 50
	// maxRangesShown is how many ranges of partitions are named.
	maxRangesShown = 20
)

// instancesOf returns a page of the holders, in the order of their names.
func instancesOf(s *lockview.Snapshot, q query) instancesView {
	all := map[string]*instance{}
	matching := []*instance{}
	text := strings.ToLower(q.Text)
	for i := range s.Records {
		r := &s.Records[i]
		if r.State != driver.StateHeld {
			continue
		}
		group, number, isPartition := partitionOf(r.Name)
		if isPartition && group == "" {
			continue
		}
		for owner := range ownersOf(r) {
			if isPartition {
				owner = instanceOf(owner)
			}
			at := all[owner]
			if at == nil {
				at = &instance{Owner: owner, Locks: []string{}, Partitions: []*partition{}}
				all[owner] = at
				if strings.Contains(strings.ToLower(owner), text) {
					matching = append(matching, at)
				}
			}
			if isPartition {
				at.add(group, number)
				continue
			}
			at.LocksHeld++
			if len(at.Locks) < maxLocksShown {
				at.Locks = append(at.Locks, r.Name)
			}
		}
	}
	slices.SortFunc(matching, func(a, b *instance) int { return strings.Compare(a.Owner, b.Owner) })
	out := instancesView{Total: len(all), Matching: len(matching)}
	out.Instances, out.Page, out.Pages = paged(matching, q)
	for _, at := range out.Instances {
		for _, p := range at.Partitions {
			p.Numbers = ranges(p.numbers)
		}
	}
	return out
}

// ownersOf ranges over the owners of a lock, each once.
func ownersOf(r *driver.Record) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(r.Holders) == 0 {
			yield(r.Owner)
			return
		}
		seen := map[string]bool{}
		for _, h := range r.Holders {
			if !seen[h.Owner] && !yield(h.Owner) {
				return
			}
			seen[h.Owner] = true
		}
	}
}

func (i *instance) add(group string, number uint64) {
	p := i.groups[group]
	if p == nil {
		if i.groups == nil {
			i.groups = map[string]*partition{}
		}
		p = &partition{Group: group}
		i.groups[group] = p
		i.Partitions = append(i.Partitions, p)
	}
	p.Count++
	p.numbers = append(p.numbers, number)
}

// ranges writes ascending numbers as people do.
func ranges(numbers []uint64) string {
	var out []string
	for i := 0; i < len(numbers); {
		if len(out) == maxRangesShown {
			return strings.Join(out, ", ") + " …"
		}
		from := i
		for i++; i < len(numbers) && numbers[i] == numbers[i-1]+1; i++ {
		}
		text := strconv.FormatUint(numbers[from], 10)
		if i-from > 1 {
			text += "–" + strconv.FormatUint(numbers[i-1], 10)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// instanceOf returns the name of an instance without the mark that package partitions appends for
// each run: "#" and twelve hexadecimal digits.
func instanceOf(owner string) string {
	const digits = 12
	at := len(owner) - digits - 1
	if at < 0 || owner[at] != '#' || strings.Trim(owner[at+1:], "0123456789abcdef") != "" {
		return owner
	}
	return owner[:at]
}

// partitionOf recognizes a lock of package partitions by its name. The group is "" for a lock that
// counts the members of a group or wakes them.
func partitionOf(name string) (group string, number uint64, ok bool) {
	const mark = "/partition-"
	at := strings.LastIndex(name, mark)
	if at < 0 {
		return "", 0, false
	}
	rest := name[at+len(mark):]
	if rest == "notice" || strings.HasPrefix(rest, "member-") {
		return "", 0, true
	}
	number, err := strconv.ParseUint(rest, 10, 32)
	return name[:at], number, err == nil
}
