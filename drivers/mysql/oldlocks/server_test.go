package oldlocks

import (
	"strings"
	"testing"
)

// What statements depend on follows from the server and from the types of the columns.
func TestServer(t *testing.T) {
	t.Parallel()
	table := func(times, name, owner string) map[string]string {
		return map[string]string{"lock_until": times, "locked_at": times, "name": name, "locked_by": owner}
	}
	dates := table("datetime(3)", "varchar(64)", "varchar(33)")
	binlog := func(on, format string) map[string]string {
		return map[string]string{"version": "8.0.36", "log_bin": on, "binlog_format": format}
	}
	for what, c := range map[string]struct {
		variables, types      map[string]string
		prefix, waits, inZone string
	}{
		"rows":            {binlog("ON", "ROW"), dates, "", "TRUE", "TRUE"},
		"mixed":           {binlog("ON", "MIXED"), dates, "", "TRUE", "TRUE"},
		"no binary log":   {binlog("OFF", "STATEMENT"), dates, "", "TRUE", "TRUE"},
		"TIMESTAMP":       {nil, table("timestamp(3)", "varchar(64)", "varchar(255)"), "", "TRUE", inUTC},
		"Galera, MariaDB": {map[string]string{"version": "10.11.19-MariaDB", "wsrep_on": "ON"}, dates, waitPrefix, "TRUE", "TRUE"},
		"Galera, MySQL":   {map[string]string{"version": "8.0.36-28.1", "wsrep_on": "ON"}, dates, "", waitIsSet, "TRUE"},
	} {
		s, err := newServer(c.variables, c.types, true)
		if err != nil || s.prefix != c.prefix || s.waits != c.waits || s.inZone != c.inZone {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	for want, c := range map[string]struct{ variables, types map[string]string }{
		"binlog_format is STATEMENT": {binlog("ON", "STATEMENT"), dates},
		"no column lock_until":       {nil, nil},
		"no column locked_by":        {nil, table("datetime", "text", "")},
		"column name":                {nil, table("datetime", "binary(64)", "text")},
		"column locked_by":           {nil, table("datetime", "char(64)", "char(32)")},
	} {
		if s, err := newServer(c.variables, c.types, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want an error with %q", s, err, want)
		}
	}
}
