package file

import (
	"regexp"
	"strings"
	"testing"
)

func TestStem(t *testing.T) {
	long := strings.Repeat("x", 400)
	for name, want := range map[string]string{
		"billing":       "billing",
		"a_b-c.9":       "a_b-c.9",
		"jobs/Nightly":  "jobs%2f%4eightly",
		".hidden":       "%2ehidden",
		"..":            "%2e.",
		"con":           "%63on",
		"nul.txt":       "%6eul.txt",
		"com1":          "%63om1",
		"console":       "console",
		"com10":         "com10",
		"caf\u00e9":     "caf%c3%a9",
		"cafe\u0301":    "cafe%cc%81",
		"%41":           "%2541",
		"~":             "%7e",
		"a\x00b":        "a%00b",
		" trailing. ":   "%20trailing.%20",
		`C:\x`:          "%43%3a%5cx",
		long[:maxStem]:  long[:maxStem],
		"../etc/passwd": "%2e.%2fetc%2fpasswd",
	} {
		if got := stem(name); got != want {
			t.Errorf("stem(%q) = %q, want %q", name, got, want)
		}
	}
	one, two := stem(long+"1"), stem(long+"2")
	if one == two || len(one) > 200 {
		t.Errorf("long names: %q and %q; want two stems that fit", one, two)
	}
}

var safe = regexp.MustCompile(`^[a-z0-9_%-][a-z0-9_.%-]*(~[0-9a-f]{64})?$`)

// FuzzStem searches for two names with one stem, and for stems that some file system would change
// or refuse.
func FuzzStem(f *testing.F) {
	f.Add("a", "A")
	f.Add("e\u0301", "\u00e9")
	f.Add("con", "%63on")
	f.Add("a.", "a")
	f.Add(".", "%2e")
	f.Add(strings.Repeat("A", 300), strings.Repeat("A", 301))
	f.Add(strings.Repeat("a", maxStem), strings.Repeat("a", maxStem+1))
	f.Fuzz(func(t *testing.T, one, two string) {
		if one == "" || two == "" {
			return
		}
		a, b := stem(one), stem(two)
		if (one == two) != (a == b) {
			t.Errorf("stems %q and %q of the names %q and %q", a, b, one, two)
		}
		if !safe.MatchString(a) || isDevice(a) || len(a)+len(".json") > 255 {
			t.Errorf("stem %q of %q is no safe file name", a, one)
		}
		if !isStem(a) || !mayHavePrefix(a, one[:len(one)/2]) {
			t.Errorf("stem %q of %q is not found", a, one)
		}
		if got, cut := nameOf(a), strings.Contains(a, "~"); got != one && !cut || got != a && cut {
			t.Errorf("stem %q of %q is listed as %q", a, one, got)
		}
		if name := nameOf(two); isStem(two) && !strings.Contains(two, "~") && stem(name) != two {
			t.Errorf("the file %q is listed as %q, whose stem is %q", two, name, stem(name))
		}
	})
}
