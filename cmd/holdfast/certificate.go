package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-go/holdfast/cmd/bench"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/lockertest"
)

// certificate is the report of "holdfast certify".
type certificate struct {
	Complete   bool             `json:"complete"` // false: the clauses were not all checked, and some are broken
	Verdict    driver.Level     `json:"verdict"`
	Backend    string           `json:"backend"` // what people call it
	Place      *string          `json:"place"`   // nil without --hosts
	Server     *string          `json:"server"`  // kind, version and topology; nil if the backend does not show them
	Holdfast   versionJSON      `json:"holdfast"`
	At         time.Time        `json:"at"`
	Took       float64          `json:"seconds"`
	Declared   declared         `json:"declared"`
	Groups     []clauseGroup    `json:"clauses"`
	Broken     []brokenClause   `json:"broken"`
	NotChecked []notChecked     `json:"notChecked"`
	Calls      *bench.Report    `json:"calls"`
	Soak       *soak            `json:"soak"`     // nil without --for
	Findings   []driver.Finding `json:"findings"` // without --hosts only subject and level
}

// declared is what the driver promises for this server.
type declared struct {
	Expiry   string `json:"endOfLeases"`
	Failover string `json:"failOver"`
	Modes    string `json:"modes"`
	MinTTL   string `json:"minTTL"`
	MaxTTL   string `json:"maxTTL"`
}

// clauseGroup counts clauses.
type clauseGroup struct {
	Group      string `json:"group"`
	Kept       int    `json:"kept"`
	Broken     int    `json:"broken"`
	NotChecked int    `json:"notChecked"`
}

// brokenClause is a clause that the backend has not kept.
type brokenClause struct {
	Clause   string   `json:"clause"`
	Says     string   `json:"says"`
	Failures []string `json:"failures"`
}

// notChecked are the clauses that were left out for one reason.
type notChecked struct {
	Reason  string   `json:"reason"`
	Clauses []string `json:"clauses"`
}

func newCertificate(about driver.Description) *certificate {
	return &certificate{Backend: about.Name, Holdfast: build(), At: time.Now().UTC().Truncate(time.Second),
		Groups: []clauseGroup{}, Broken: []brokenClause{}, NotChecked: []notChecked{}, Findings: []driver.Finding{}}
}

// declare notes what a Locker promises.
func (c *certificate) declare(info driver.Info) {
	c.Declared = declared{Expiry: info.Expiry.String(), Failover: info.Failover.String(), Modes: info.Modes.String(),
		MinTTL: driver.FormatDuration(info.Limits.MinTTL), MaxTTL: driver.FormatDuration(info.Limits.MaxTTL)}
}

// add counts the outcome of a clause.
func (c *certificate) add(found lockertest.Outcome) {
	name, _, _ := strings.Cut(found.Clause, "/")
	group := find(&c.Groups, func(g clauseGroup) bool { return g.Group == name }, clauseGroup{Group: name})
	switch {
	case len(found.LeftOut) > 0:
		group.NotChecked++
		why := strings.Join(found.LeftOut, "; ")
		left := find(&c.NotChecked, func(n notChecked) bool { return n.Reason == why }, notChecked{Reason: why})
		left.Clauses = append(left.Clauses, found.Clause)
	case len(found.Failures) > 0:
		group.Broken++
		c.Broken = append(c.Broken, brokenClause{found.Clause, found.Says, found.Failures})
	default:
		group.Kept++
	}
}

// find returns the element that is wanted, and adds it if there is none.
func find[T any](all *[]T, wanted func(T) bool, other T) *T {
	for i := range *all {
		if wanted((*all)[i]) {
			return &(*all)[i]
		}
	}
	*all = append(*all, other)
	return &(*all)[len(*all)-1]
}

// finish draws the conclusion, and takes out secrets and, unless they are wanted, the names of hosts.
func (c *certificate) finish(backend string, hosts bool) {
	secrets := backends.SecretValues(backend)
	safe := func(text string) string { return backends.HideSecrets(backends.Redact(text), secrets) }
	var server []string
	for i, f := range c.Findings {
		if f.Server != "" && !slices.Contains(server, f.Server) { // several servers may be alike
			server = append(server, f.Server)
		}
		if f.Level != driver.LevelUnchecked { // what was not checked says nothing of the backend
			c.Verdict = max(c.Verdict, f.Level)
		}
		shown := driver.Finding{Subject: f.Subject, Level: f.Level}
		if hosts {
			shown.Detail, shown.Remedy, shown.Command = safe(f.Detail), safe(f.Remedy), safe(f.Command)
		}
		c.Findings[i] = shown
	}
	if len(server) > 0 {
		text := hideHosts(safe(strings.Join(server, "; ")), backend)
		c.Server = &text
	}
	if len(c.Broken) > 0 {
		c.Verdict = driver.LevelWrong
	}
	for _, broken := range c.Broken {
		for i, failure := range broken.Failures {
			broken.Failures[i] = safe(failure)
			if !hosts {
				broken.Failures[i] = hideHosts(broken.Failures[i], backend)
			}
		}
	}
	if place := safe(backends.Display(backend)); hosts {
		c.Place = &place
	}
}

// verdicts are the verdicts in words.
var verdicts = map[driver.Level]string{
	driver.LevelOK: "every clause was kept", driver.LevelUnchecked: "every clause was kept",
	driver.LevelDoubtful: `every clause was kept, but something is doubtful: see "holdfast doctor"`,
	driver.LevelWrong:    "NOT CERTIFIED",
}

// writeText writes the report for people.
func (c *certificate) writeText(w io.Writer) error {
	kept, checked := 0, 0
	for _, g := range c.Groups {
		kept += g.Kept
		checked += g.Kept + g.Broken
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s\t%s\n", name, value) }
	row("verdict", verdicts[c.Verdict])
	row("backend", c.Backend)
	if c.Place != nil {
		row("place", format.Text(*c.Place))
	}
	if c.Server != nil {
		row("server", oneLine(*c.Server))
	}
	row("holdfast", fmt.Sprintf("%s (commit %s, %s, %s)", orUnknown(c.Holdfast.Version), orUnknown(c.Holdfast.Commit), c.Holdfast.Go,
		c.Holdfast.System))
	row("date", fmt.Sprintf("%s, in %s", c.At.Format(time.RFC3339), format.Duration(time.Duration(c.Took*float64(time.Second)))))
	row("end of leases", c.Declared.Expiry)
	row("fail-over", c.Declared.Failover)
	row("modes", c.Declared.Modes)
	row("TTL", "from "+c.Declared.MinTTL+" to "+c.Declared.MaxTTL)
	row("clauses", fmt.Sprintf("%d of %d that were checked were kept", kept, checked))
	if s := c.Soak; s != nil {
		row("soak", fmt.Sprintf("%s: %d holds of %d locks by %d clients, %d lost, %d problems",
			format.Duration(time.Duration(s.Seconds*float64(time.Second))), s.Holds, s.Locks, s.Clients, s.Losses, len(s.Problems)))
	}
	fmt.Fprint(table, "\nclauses of\tkept\tbroken\tnot checked\n")
	for _, g := range c.Groups {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", g.Group, g.Kept, g.Broken, g.NotChecked)
	}
	if c.Calls != nil {
		fmt.Fprint(table, "\nmilliseconds\tp50\tp90\tp99\n")
		for _, r := range c.Calls.Rows() {
			fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\n", r.Name, r.P50, r.P90, r.P99)
		}
	}
	for i, n := range c.NotChecked {
		if i == 0 {
			fmt.Fprint(table, "\nnot checked\tclauses\n")
		}
		row(n.Reason, strings.Join(n.Clauses, ", "))
	}
	for i, f := range c.Findings {
		if i == 0 {
			fmt.Fprint(table, "\nexamined\t\n")
		}
		detail := ""
		if f.Detail != "" {
			detail = ": " + oneLine(f.Detail)
		}
		row(f.Subject, f.Level.String()+detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return c.writeBroken(w)
}

// writeBroken writes what was broken.
func (c *certificate) writeBroken(w io.Writer) error {
	for _, b := range c.Broken {
		if _, err := fmt.Fprintf(w, "\nBROKEN %s\nThe contract: %s\n", b.Clause, b.Says); err != nil {
			return err
		}
		for _, failure := range b.Failures {
			if _, err := fmt.Fprintf(w, "- %s\n", oneLine(failure)); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneLine makes a text that may come from a backend safe to show.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
