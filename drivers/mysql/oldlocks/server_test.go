package oldlocks

import (
	"strings"
	"testing"
)

// What statements depend on follows from the server and from the types of the columns.
func TestServer(t *testing.T) {
	t.Parallel()
	stamps := map[string]string{"name": "varchar(64)", "lock_until": "timestamp(3)", "locked_at": "timestamp(3)", "locked_by": "varchar(255)"}
	dates := map[string]string{"name": "varchar(64)", "lock_until": "datetime", "locked_at": "datetime(6)", "locked_by": "varchar(33)"}
	for what, c := range map[string]struct {
		variables, types      map[string]string
		refused               string // a part of the error
		prefix, waits, inZone string
	}{
		"MySQL":                   {map[string]string{"version": "8.0.36", "log_bin": "ON", "binlog_format": "ROW"}, dates, "", "", "TRUE", "TRUE"},
		"TIMESTAMP":               {map[string]string{"version": "8.0.36"}, stamps, "", "", "TRUE", inUTC},
		"statements":              {map[string]string{"log_bin": "ON", "binlog_format": "STATEMENT"}, dates, "binlog_format is STATEMENT", "", "", ""},
		"no binary log":           {map[string]string{"log_bin": "OFF", "binlog_format": "STATEMENT"}, dates, "", "", "TRUE", "TRUE"},
		"mixed":                   {map[string]string{"log_bin": "ON", "binlog_format": "MIXED"}, dates, "", "", "TRUE", "TRUE"},
		"Galera, MariaDB":         {map[string]string{"version": "10.11.19-MariaDB", "wsrep_on": "ON"}, dates, "", waitPrefix, "TRUE", "TRUE"},
		"Galera, MySQL":           {map[string]string{"version": "8.0.36-28.1", "wsrep_on": "ON"}, dates, "", "", waitIsSet, "TRUE"},
		"no column":               {nil, map[string]string{"lock_until": "datetime", "locked_at": "datetime", "name": "text"}, "no column locked_by", "", "", ""},
		"no table":                {nil, nil, "no column lock_until", "", "", ""},
		"bytes of a fixed length": {nil, map[string]string{"lock_until": "datetime", "locked_at": "datetime", "name": "binary(64)"}, "column name", "", "", ""},
	} {
		s, err := newServer(c.variables, c.types, true)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want an error with %q", what, err, c.refused)
			}
		case err != nil || s.prefix != c.prefix || s.waits != c.waits || s.inZone != c.inZone:
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
}
