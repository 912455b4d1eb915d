package backends

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/postgres"
	_ "github.com/holdfast-go/holdfast/internal/alldrivers"
)

func TestDisplay(t *testing.T) {
	for given, want := range map[string]string{
		"file:/var/lib/holdfast":                      "file:/var/lib/holdfast",
		"mongodb://db1,db2:27018/app?replicaSet=rs0":  "mongodb://db1,db2:27018/app",
		"mongodb://joe:sEcReT@db1/app":                "mongodb://db1/app",
		"mongodb://joe:sE@cReT@db1/app?x=1":           "mongodb://db1/app",
		"mongodb://joe:sE?c/ReT@db1/app":              "mongodb://db1/app",
		"mongodb://joe:sE?cReT@db1/app":               "mongodb://db1/app",
		"mongodb://u:p%40x@h1,h2/app?appName=me@here": "mongodb://h1,h2/app",
		"MongoDB+srv://joe:sEcReT@db1/app":            "mongodb+srv://db1/app",
		"azblob://acct/locks/prefix":                  "azblob://acct/locks/prefix",
		"azblob://emulator/locks?endpoint=http://127.0.0.1:10000/devstoreaccount1&client_id=x": "azblob://emulator/locks at " +
			"http://127.0.0.1:10000/devstoreaccount1",
	} {
		if got := Display(given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	for _, given := range []string{"azblob://acct/locks/AccountKey=sEcReT", "azblob://acct/c?sig=sEcReT", "azblob://u:sEcReT?x@acct/c",
		"file:/x/AccountKey=sEcReT", "mongodb://h/app?password=sEcReT"} {
		if got := Display(given); strings.Contains(got, "sEcReT") {
			t.Errorf("%s: %s", given, got)
		}
	}
}

// A URL that is nearly right leads to what was meant, without showing more than its scheme.
func TestChooseSaysWhatWasMeant(t *testing.T) {
	for given, want := range map[string]string{
		"mongo://joe:sEcReT@db1/app":                          "did you mean mongodb:?",
		"https://acct.blob.core.windows.net/locks?sig=sEcReT": "did you mean azblob://ACCOUNT/CONTAINER?",
		" mongodb://joe:sEcReT@db1/app":                       "the backend's URL with white space or an invisible character at an end",
	} {
		if _, err := Choose(given, false, false); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sEcReT") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := Choose("consul://h", false, false); err == nil || strings.Contains(err.Error(), "mean") {
		t.Errorf("got %v", err)
	}
}

// Without a URL only a user at a terminal gets the local folder, and no command that holdfast runs.
func TestDefault(t *testing.T) {
	if got, err := Choose("", true, false); err != nil || !strings.HasPrefix(got, "file:/") {
		t.Errorf("at a terminal: %q, %v", got, err)
	}
	if got, err := Choose("", false, false); err == nil || strings.Contains(err.Error(), "--keep-env") {
		t.Errorf("elsewhere: %q, %v", got, err)
	}
	if got, err := Choose("", true, true); err == nil || !strings.Contains(err.Error(), "--keep-env") {
		t.Errorf("under another holdfast run: %q, %v", got, err)
	}
}

// FuzzChoose checks that a URL is accepted only with a known scheme, and that neither the error
// nor the text for messages shows a password.
func FuzzChoose(f *testing.F) {
	f.Add("mongodb", "", "", "db1,db2/app?replicaSet=rs0")
	f.Add("MongoDB+srv", "sE@", "?c/", "db1/app?appName=me@here")
	f.Add("azblob", "", "", "acct/c?endpoint=http://127.0.0.1:10000/devstoreaccount1")
	f.Add("file", "", "", "/x")
	f.Add("mem", "", "", "")
	f.Add("x y", "%", "", "/")
	f.Fuzz(func(t *testing.T, scheme, start, end, rest string) {
		if strings.Contains(scheme, ":") {
			return // the URL has another scheme
		}
		const secret = "s3cr3t-0f-7h3-u53r"
		given := scheme + "://user:" + start + secret + end + "@" + rest
		got, err := Choose(given, false, false)
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q: error %v", given, err)
			}
			return
		}
		if got != given || !slices.Contains(driver.Schemes(), strings.ToLower(scheme)) {
			t.Errorf("%q is accepted as %q", given, got)
		}
		// In user:a@b?c@host nothing says whether a@b?c is the password or b the host.
		ambiguous := strings.Contains(start, "@") && strings.Contains(end, "?")
		if shown := Display(given); strings.Contains(shown, secret) && !ambiguous || !strings.HasPrefix(shown, strings.ToLower(scheme)) {
			t.Errorf("%q is shown as %q", given, shown)
		}
	})
}
