package driver_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func init() {
	local, twice := described("a-local"), described("twice")
	local.Reach, twice.Schemes = driver.ReachProcess, []string{"twice", "again"}
	driver.Register(local)
	driver.Register(twice)
}

func init() { // names that are no secrets, and one that is marked as one
	d := described("harmless")
	d.Params = []string{"retention", "endpoint", "keyspace", "client_id", "tlsCertificateKeyFile",
		"passwordFile", "key-path", "design", "signed", "apiKey"}
	d.Secrets = []string{"APIKEY"}
	driver.Register(d)
}

// A wrong description is refused, with a text that names the driver and the field.
func TestRegisterRefuses(t *testing.T) {
	reads := func(string) bool { return true }
	counted := func(context.Context, string, func()) (driver.Locker, error) { return nil, errOpened }
	for want, change := range map[string]func(d *driver.Description){
		"Name":             func(d *driver.Description) { d.Name = "" },
		"Name \"a\\nb\"":   func(d *driver.Description) { d.Name = "a\nb" },
		"without a scheme": func(d *driver.Description) { d.Schemes = nil },
		"Schemes \"\"":     func(d *driver.Description) { d.Schemes = []string{""} },
		"Schemes \"Bad\"":  func(d *driver.Description) { d.Schemes = []string{"Bad"} },
		"Schemes \"b:\"":   func(d *driver.Description) { d.Schemes = []string{"bad", "b:"} },
		"without repeats":  func(d *driver.Description) { d.Schemes = []string{"bad", "bad"} },
		`Schemes "registered" is invalid: must be of one driver alone, and "store of registered" has it`: func(d *driver.Description) {
			d.Schemes = []string{"bad", "registered"}
		},
		`driver "store of twice": Schemes "twice" is invalid`: func(d *driver.Description) {
			*d = described("twice") // the same driver again
		},
		"Examples without a URL is invalid": func(d *driver.Description) { d.Examples = nil },
		"can be parsed":                     func(d *driver.Description) { d.Examples[0].URL = "bad://%zz" },
		"with a scheme of this driver: bad": func(d *driver.Description) { d.Examples[0].URL = "other://HOST" },
		"with an explanation":               func(d *driver.Description) { d.Examples[0].Help = "" },
		"Open nil":                          func(d *driver.Description) { d.Open = nil },
		"Reach 77 is invalid: must be":      func(d *driver.Description) { d.Reach = 77 },
		"Requests \"rows\"":                 func(d *driver.Description) { d.Requests = "rows" },
		"Requests \"\"":                     func(d *driver.Description) { d.OpenCounted = counted },
		"Requests \"a\\tb\"":                func(d *driver.Description) { d.OpenCounted, d.Requests = counted, "a\tb" },
		"Params \"a=b\"":                    func(d *driver.Description) { d.Params = []string{"a=b"} },
		"Secrets \"sig=\"":                  func(d *driver.Description) { d.Secrets = []string{"sig="} },
		"Secrets \":\"":                     func(d *driver.Description) { d.Secrets = []string{":"} },
		"Credentials \"\"":                  func(d *driver.Description) { d.Credentials = []driver.Credentials{{}} },
		"Credentials \"A=B\"":               func(d *driver.Description) { d.Credentials = []driver.Credentials{{Variables: []string{"A=B"}}} },
		"Credentials \"A, \"":               func(d *driver.Description) { d.Credentials = []driver.Credentials{{Variables: []string{"A", ""}}} },
		"Credentials \"A\" is invalid: must be with Reads and When": func(d *driver.Description) {
			d.Credentials = []driver.Credentials{{Variables: []string{"A"}, Reads: reads}}
		},
	} {
		d := described("bad")
		change(&d)
		text := refused(t, d)
		if !strings.HasPrefix(text, "holdfast: Register of the driver ") || !strings.Contains(text, want) {
			t.Errorf("%q, want %s", text, want)
		}
	}
	if slices.Contains(driver.Schemes(), "bad") {
		t.Error("a refused driver is registered")
	}
}

// refused returns the text with which Register panics.
func refused(t *testing.T, d driver.Description) (text string) {
	t.Helper()
	defer func() {
		var ok bool
		if text, ok = recover().(string); !ok {
			t.Errorf("%+v was accepted", d.Schemes)
		}
	}()
	driver.Register(d)
	return ""
}

// A parameter that is named like a secret is one, or the driver is refused: it would be shown in messages.
func TestParamsNamedLikeSecretsMustBeSecret(t *testing.T) {
	for _, name := range []string{
		"key", "apiKey", "api_key", "accountkey", "keyBase64", "password", "dbPassword", "PASSWD", "pwd", "token", "session-token", "sasToken",
		"sig", "x.sig", "signature", "secret", "clientSecret", "secretValue", "credentials",
	} {
		d := described("bad")
		d.Params = []string{"retention", name}
		if text := refused(t, d); !strings.Contains(text, `Params "`+name+`" is invalid: must be in Secrets as well`) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Descriptions come in one order, and are found by each scheme of the driver in any case of letters.
func TestDriversAndDescribe(t *testing.T) {
	var all []string
	for _, d := range driver.Drivers() {
		all = append(all, d.Schemes[0])
	}
	order := func(scheme string) int { return slices.Index(all, scheme) }
	if order("plain") < 0 || order("plain") > order("registered") || order("registered") > order("twice") || order("a-local") != len(all)-1 {
		t.Errorf("the drivers are %q", all)
	}
	for url, want := range map[string]string{"twice:": "twice", "AGAIN://x": "twice", "again": "", "": "", ":": "", "none:": ""} {
		d, known := driver.Describe(url)
		if known != (want != "") || known && d.Schemes[0] != want {
			t.Errorf("%q: %q, %t", url, d.Schemes, known)
		}
	}
	if schemes := driver.Schemes(); !slices.IsSorted(schemes) || !slices.Contains(schemes, "again") {
		t.Errorf("the schemes are %q", schemes)
	}
}
