package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// declaredRows are rows of the table in docs/backends.md, and how the cell of a backend begins by its declaration.
var declaredRows = map[string]func(driver.Info) string{
	"after a fail-over": func(i driver.Info) string { return i.Failover.String() },
	"[shared locks](readers.md) (`WithShared`)": func(i driver.Info) string {
		if i.Modes.Shared {
			return "yes"
		}
		return "no"
	},
	"record of an unused lock": func(i driver.Info) string {
		switch i.Free.RemovedAfter {
		case 0:
			return "stays"
		case 24 * time.Hour:
			return "is removed after a day"
		default:
			return "is removed after " + driver.FormatDuration(i.Free.RemovedAfter)
		}
	},
	"past holders in the record: end and time": func(i driver.Info) string {
		if i.EndsUnknown {
			return "only"
		}
		return "yes"
	},
	"maximum name": func(i driver.Info) string { return fmt.Sprintf("%d bytes", i.Limits.MaxName) },
	"maximum data": func(i driver.Info) string {
		if n := i.Limits.MaxData; n < 1<<20 {
			return fmt.Sprintf("%d KiB", n>>10)
		}
		return fmt.Sprintf("%d MiB", i.Limits.MaxData>>20)
	},
}

// declaredInfo is what a driver declares of a backend that is set up as it should be. No server is asked.
func declaredInfo(t *testing.T, d driver.Description) driver.Info {
	t.Helper()
	for _, example := range d.Examples {
		l, err := driver.OpenForCheck(t.Context(), example.URL)
		if err != nil {
			continue // it has a placeholder that is no valid name
		}
		info := l.Info()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return info
	}
	t.Fatalf("%s: none of the examples can be opened", d.Name)
	return driver.Info{}
}

// The comparison of the backends says what their drivers declare.
func TestTableFollowsTheDeclarations(t *testing.T) {
	rows := map[string][]string{}
	bold := strings.NewReplacer("**", "")
	for _, line := range regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(readFile(t, "../../docs/backends.md"), -1) {
		cells := strings.Split(strings.Trim(bold.Replace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if rows[cells[0]] == nil { // further tables have other rows
			rows[cells[0]] = cells
		}
	}
	for column, heading := range rows[""] {
		for _, d := range driver.Drivers() {
			if heading != "" && (strings.Contains(heading, d.Name) || strings.Contains(heading, "`"+d.Schemes[0]+":")) {
				info := declaredInfo(t, d)
				if free := info.Free; !free.Token || !free.Data || !free.History { // a sentence says it of all
					t.Errorf("docs/backends.md: %s: the record of a free lock keeps %+v", d.Name, free)
				}
				for row, begins := range declaredRows {
					if cells := rows[row]; column >= len(cells) || !strings.HasPrefix(cells[column], begins(info)) {
						t.Errorf("docs/backends.md: %s: the row %q must begin with %q, as Info declares; it has %q", d.Name, row, begins(info), cells)
					}
				}
			}
		}
	}
	if len(rows[""]) < len(driver.Drivers()) {
		t.Errorf("the table has the columns %q", rows[""])
	}
}
