package main

import (
	"fmt"
	"regexp"
	"slices"
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

// declaredAt are URLs of drivers of the full build, by their first scheme, for which no example can be opened.
var declaredAt = map[string]func(testing.TB) string{}

// declaredInfo is what a driver declares of a backend that is set up as it should be. No real server is asked.
func declaredInfo(t *testing.T, d driver.Description) driver.Info {
	t.Helper()
	var urls []string
	for _, example := range d.Examples {
		urls = append(urls, example.URL)
	}
	if at := declaredAt[d.Schemes[0]]; at != nil {
		urls = []string{at(t)}
	}
	for _, url := range urls {
		l, err := driver.OpenForCheck(t.Context(), url)
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

// tableCells are the cells of all tables of a page, without bold type.
func tableCells(t *testing.T, page string) (rows [][]string) {
	t.Helper()
	bold := strings.NewReplacer("**", "")
	for _, line := range regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(readFile(t, page), -1) {
		cells := strings.Split(strings.Trim(bold.Replace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// isOf reports whether a cell names a driver.
func isOf(cell string, d driver.Description) bool {
	return strings.Contains(cell, d.Name) || strings.Contains(cell, "`"+d.Schemes[0]+":")
}

// The comparison of the backends says what their drivers declare.
func TestTableFollowsTheDeclarations(t *testing.T) {
	rows, compared := map[string][]string{}, 0
	for _, cells := range tableCells(t, "../../docs/backends.md") {
		if rows[cells[0]] == nil { // further tables have other rows
			rows[cells[0]] = cells
		}
	}
	for column, heading := range rows[""] {
		for _, d := range driver.Drivers() {
			if isOf(heading, d) {
				compared++
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
	if compared != len(driver.Drivers()) {
		t.Errorf("%d of %d drivers were compared; the table has the columns %q", compared, len(driver.Drivers()), rows[""])
	}
}

// The table of TTLs says what the drivers declare.
func TestTTLTableFollowsTheDeclarations(t *testing.T) {
	rows := tableCells(t, "../../docs/ttl.md")
	for _, d := range driver.Drivers() {
		limits := declaredInfo(t, d).Limits
		want := []string{ttlText(limits.MinTTL) + " to " + ttlText(limits.MaxTTL), ttlText(limits.TTLStep)}
		i := slices.IndexFunc(rows, func(cells []string) bool { return len(cells) == 3 && isOf(cells[0], d) })
		if i < 0 || !slices.Equal(rows[i][1:], want) {
			t.Errorf("docs/ttl.md: %s: no row has %q, as Info declares", d.Name, want)
		}
	}
}

// ttlText writes a time as that table does.
func ttlText(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		size time.Duration
		name string
		from time.Duration
	}{
		{365 * day, "years", 2 * 365 * day}, {day, "days", 2 * day}, {time.Hour, "h", time.Hour}, {time.Second, "s", time.Second},
		{time.Millisecond, "ms", time.Millisecond},
	} {
		if d >= unit.from && d%unit.size == 0 {
			return fmt.Sprint(int64(d/unit.size), " ", unit.name)
		}
	}
	return fmt.Sprint(d.Nanoseconds(), " ns")
}
