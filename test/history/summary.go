package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// String returns a summary: what happened, and for each rule the number of violations.
func (r *Report) String() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-40s "+format+"\n", append([]any{name}, args...)...)
	}
	row("grants", "%d to %d clients", r.Grants, r.Holders)
	row("updates of the counter", "%d", r.Updates)
	row("operations on fenced registers", "%d (%d refused, %d with unknown outcome)", r.Operations, r.Refused, r.Unknown)
	total := 0
	for _, n := range r.Faults {
		total += n
	}
	row("faults", "%d", total)
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		row("  "+name, "%d", r.Faults[name])
	}
	row("longest time without a holder", "%v", r.Vacancy.Round(time.Millisecond))
	row("times a process did not get to run", "%d", r.Stalls)
	for _, rule := range Rules {
		note := ""
		if n := r.Excused[rule]; n > 0 {
			note = fmt.Sprintf(" (and %d excused: paused or skewed)", n)
		}
		row(string(rule), "%d%s", r.Count(rule), note)
	}
	return b.String()
}
