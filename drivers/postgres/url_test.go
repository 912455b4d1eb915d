package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The driver's own parameters are taken out before pgx sees the URL, and come before the options of the program.
func TestURLParameters(t *testing.T) {
	rest, own, err := takeParams("POSTGRES://u:p%40ss@h1:1,h2:2/app?sslmode=disable&table=my%20locks&schema=s" +
		"&commandTimeout=3s&history=3&pool_max_conns=7" +
		"&listen=postgresql%3A%2F%2Fme%3Asecret%40direct%3A7%2Fapp&options=-c%20statement_timeout%3D5s")
	if err != nil {
		t.Fatal(err)
	}
	if want := "postgres://u:p%40ss@h1:1,h2:2/app?sslmode=disable&pool_max_conns=7&options=-c%20statement_timeout%3D5s"; rest != want {
		t.Errorf("pgx gets %s, want %s", rest, want)
	}
	c, err := newConfig(append([]Option{WithHistory(5), WithCommandTimeout(time.Second), WithTable("x", "y")}, own...))
	if err != nil || c.table != (tableName{"s", "my locks"}) || c.timeout != 3*time.Second || c.history != 3 ||
		c.listen.Host != "direct" || c.listen.Port != 7 {
		t.Errorf("got %+v, %v", c, err)
	}
	l, err := connect("postgres://h/app?table=t", []Option{WithHistory(5), WithCommandTimeout(4 * time.Second), WithTable("x", "y")})
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	if c := l.config; c.table != (tableName{"x", "t"}) || c.timeout != 4*time.Second || c.history != 5 {
		t.Errorf("got %+v", c)
	}
	if name := l.pool.Config().ConnConfig.RuntimeParams["application_name"]; name != "holdfast" {
		t.Errorf("the server sees the application %q", name)
	}
}

// Each mistake has an error that says what is wrong, and none shows a part of a password.
func TestURLErrors(t *testing.T) {
	const secret = "s3cr3t"
	at := "postgres://user:" + secret + "@"
	for rawURL, want := range map[string]string{
		at + "127.0.0.1:1/app?tabel=x":                                                    `"tabel"`,
		at + "127.0.0.1:1/app?statement_timeout=5":                                        "options=-c%20NAME=VALUE",
		at + "127.0.0.1:1/app?table=":                                                     "table",
		at + "127.0.0.1:1/app?table=%zz":                                                  "table",
		at + "127.0.0.1:1/app?table=a%00":                                                 "URL parameter table",
		at + "127.0.0.1:1/app?table=locks%0A":                                             `table with '\n' at its end`,
		at + "127.0.0.1:1/app?table=%20locks":                                             `table with ' ' in it`,
		at + "127.0.0.1:1/app?schema=s%23x":                                               `schema with '#' in it`,
		at + "127.0.0.1:1/app?schema=s%C2%A0":                                             `schema with '\u00a0' at its end`,
		at + "127.0.0.1:1/app%0A":                                                         `database with '\n' at its end`,
		at + "127.0.0.1:1/app?dbname=app%E2%80%8B":                                        `database with '\u200b' at its end`,
		at + "127.0.0.1:1/app#x":                                                          "# must be percent-encoded",
		at + "127.0.0.1:1/app?table=locks#x":                                              "# must be percent-encoded",
		at + "127.0.0.1:1/app\n":                                                          "white space or an invisible character at an end",
		at + "127.0.0.1:1/app ?":                                                          "white space or an invisible character at an end",
		at + "127.0.0.1:1/app?sslmode=disable ":                                           "white space or an invisible character at an end",
		at + "127.0.0.1:1/app?schema=" + strings.Repeat("x", 64):                          "1 to 63 bytes",
		at + "127.0.0.1:1/app?commandTimeout=soon":                                        "a duration such as 10s",
		at + "127.0.0.1:1/app?commandTimeout=0s":                                          "command timeout 0s",
		at + "127.0.0.1:1/app?history=33":                                                 "from 0 to 32",
		at + "127.0.0.1:1/app?history=all":                                                `history "all"`,
		at + "127.0.0.1:1/app?listen=" + secret:                                           "percent-encoded URL",
		at + "127.0.0.1:1/app?listen=postgres%3A%2F%2Fu%3A" + secret + "%40h%3Ax":         "percent-encoded URL",
		at + "127.0.0.1:1/app?pool_max_conns=many":                                        `"pool_max_conns"`,
		at + "127.0.0.1:1/app?sslmode=sometimes":                                          `"sslmode"`,
		at + "127.0.0.1:1/app?sslrootcert=/absent":                                        `"sslrootcert"`,
		at + "127.0.0.1:1/app?" + secret + "%2B%2F=1":                                     "not shown",
		at + "127.0.0.1:x/app":                                                            "percent-encoded",
		at + "127.0.0.1:x,127.0.0.1:1/app":                                                "a port is not a number",
		"postgres://user:" + secret + "@x@127.0.0.1:1/app":                                "percent-encoded",
		"postgres://user:" + secret + "/x@127.0.0.1:1/app":                                "percent-encoded",
		"postgres://user:%" + secret + "@127.0.0.1:1/app":                                 "percent-encoded",
		"postgres://user:x?history=" + secret + "@127.0.0.1:1/app":                        "percent-encoded",
		"postgres://user:x?commandTimeout=" + secret + "@127.0.0.1:1/app":                 "percent-encoded",
		"postgres://user:x?" + secret + "@127.0.0.1:1/app":                                "percent-encoded",
		"postgres://user:x?" + secret + "=y@127.0.0.1:1/app":                              "percent-encoded",
		"postgres://user:x@" + secret + "/y?sslmode=z@127.0.0.1:1/app":                    "percent-encoded",
		"postgres://user:1/" + secret + "@127.0.0.1:1/app":                                "percent-encoded",
		"postgres://h/app?listen=" + url.QueryEscape("postgres://u:1/"+secret+"@h/app"):   "parameter listen",
		"postgres://h/app?listen=" + url.QueryEscape("postgres://u:12?"+secret+"@h/app"):  "parameter listen",
		"postgres://h/app?listen=" + url.QueryEscape("postgres://h/app?table="+secret):    "parameter listen",
		"postgres://h/app?listen=" + url.QueryEscape("postgres://h/app?"+secret+"=other"): "parameter listen",
		"postgres://user:x@" + secret + "/y?user=z@127.0.0.1:1/app":                       "percent-encoded",
		"postgres://user:" + secret + "/app":                                              "percent-encoded",
		"postgres://user:1," + secret + "/app":                                            "percent-encoded",
		"postgres:user:" + secret + "@127.0.0.1/app":                                      "// is missing",
		at + "127.0.0.1:1/app?commandTimeout=2s":                                          "connection refused",
		at + "127.0.0.1:1/app?password=" + secret + "&commandTimeout=2s":                  "connection refused",
	} {
		for _, open := range []driver.Opener{driver.Open, driver.OpenForReading, driver.OpenForCheck} {
			l, err := open(t.Context(), rawURL)
			if err == nil { // it has sent nothing yet
				err = l.Capabilities().Checker.Check(t.Context(), func(f driver.Finding) {
					if strings.Contains(fmt.Sprint(f), secret) {
						t.Errorf("a finding shows the password: %v", f)
					}
				})
				closeLocker(t, l)
				if err != nil {
					t.Error(err)
				}
				continue
			}
			if text := err.Error(); strings.Contains(fmt.Sprintf("%s %+v %#v", text, err, err), secret) || !strings.Contains(text, want) {
				t.Errorf("%s: %v, want %q and no password", rawURL, err, want)
			}
			if invalid := errors.Is(err, driver.ErrInvalid); invalid == strings.Contains(rawURL, "=2s") {
				t.Errorf("%s: %v is invalid: %v", rawURL, err, invalid)
			}
		}
	}
}

// A database that only the environment names follows the same rule, and so does the table of an option.
func TestTyposOutsideOfTheURL(t *testing.T) {
	for _, typo := range []string{"\n", " ", "\u00a0", "#x", "'"} {
		t.Setenv("PGDATABASE", "app"+typo)
		_, err := connect("postgres://127.0.0.1:1", nil)
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "database" {
			t.Errorf("PGDATABASE with %q: %v", typo, err)
		}
		for _, table := range [][2]string{{"", "locks" + typo}, {"s" + typo, "locks"}} {
			if _, err := newConfig([]Option{WithTable(table[0], table[1])}); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("table %q: %v", table, err)
			}
		}
	}
}

// What is printed of a Locker's errors and log has no password, also not that of the second URL.
func TestNoPasswordIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l, err := connect("postgres://u:s3cr3t@127.0.0.1:1/app?listen=postgres%3A%2F%2Fv%3As3cr3t%40127.0.0.1%3A1%2Fapp",
		[]Option{WithLogger(slog.New(slog.NewTextHandler(&log, nil)))})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan driver.Wakeup, 10)
	l.Wake("job", "w", func(up driver.Wakeup) { ended <- up })
	if up := <-ended; up.Kind != driver.WakingEnded {
		t.Error(up)
	}
	closeLocker(t, l)
	if text := log.String(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "they poll") {
		t.Errorf("logged: %s", text)
	}
}

// A password of the environment is used by a URL without one, and then a command under a lock must not inherit it.
func TestPasswordOfTheEnvironment(t *testing.T) {
	for rawURL, want := range map[string]bool{
		"postgres://u:p@h/d": true, "postgres://u@h/d?sslkey=k&password=p": true, "postgres://u@h/d?sslkey=k&sslpassword=p": false,
	} {
		if got := readsPassphrase(rawURL); got != want {
			t.Errorf("%s reads PGSSLPASSWORD: %v", rawURL, got)
		}
	}
	for rawURL, want := range map[string]bool{
		"postgres://h/d": true, "postgres://u@h/d": true, "postgres://u:p@h/d": false, "postgres://u@h/d?x=1&password=p": false,
	} {
		if got := readsPassword(rawURL); got != want {
			t.Errorf("%s reads PGPASSWORD: %v", rawURL, got)
		}
	}
}
