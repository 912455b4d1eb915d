package lockrecord

import (
	"regexp"
	"strings"
	"testing"
)

func TestFileKey(t *testing.T) {
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
		long[:maxWhole]: long[:maxWhole],
		"../etc/passwd": "%2e.%2fetc%2fpasswd",
	} {
		if got := FileKey(name); got != want {
			t.Errorf("FileKey(%q) = %q, want %q", name, got, want)
		}
	}
	one, two := FileKey(long+"1"), FileKey(long+"2")
	if one == two || len(one) > 200 {
		t.Errorf("long names: %q and %q; want two keys that fit", one, two)
	}
}

var safe = regexp.MustCompile(`^[a-z0-9_%-][a-z0-9_.%-]*(~[0-9a-f]{64})?$`)

// FuzzKey searches for two names with one key, and for keys that some store or file system would change or refuse.
func FuzzKey(f *testing.F) {
	f.Add("a", "A")
	f.Add("e\u0301", "\u00e9")
	f.Add("con", "%63on")
	f.Add("a.", "a")
	f.Add(".", "%2e")
	f.Add(strings.Repeat("A", 300), strings.Repeat("A", 301))
	f.Add(strings.Repeat("a", maxWhole), strings.Repeat("a", maxWhole+1))
	f.Fuzz(func(t *testing.T, one, two string) {
		if one == "" || two == "" {
			return
		}
		for _, c := range []struct {
			key    func(string) string
			nameOf func(string) (string, bool)
		}{{Key, NameOfKey}, {FileKey, NameOfFileKey}} {
			a, b := c.key(one), c.key(two)
			if (one == two) != (a == b) {
				t.Errorf("keys %q and %q of the names %q and %q", a, b, one, two)
			}
			if !safe.MatchString(a) || len(a) > maxWhole {
				t.Errorf("key %q of %q is not safe", a, one)
			}
			if !MayHavePrefix(a, one[:len(one)/2]) {
				t.Errorf("key %q of %q is not found", a, one)
			}
			if name, ok := c.nameOf(a); ok && name != one || ok == strings.Contains(a, "~") || IsLong(a) == ok {
				t.Errorf("the name of key %q of %q is %q, %v", a, one, name, ok)
			}
			if name, ok := c.nameOf(two); ok && c.key(name) != two {
				t.Errorf("%q is read as the key of %q, whose key is %q", two, name, c.key(name))
			}
		}
		if isDevice(FileKey(one)) {
			t.Errorf("the key of %q is the name of a device", one)
		}
		if prefix := one[:len(one)/2]; !strings.HasPrefix(Key(one), KeyPrefix(prefix)) {
			t.Errorf("key %q does not begin with %q, as each key of a name with the prefix %q should", Key(one), KeyPrefix(prefix), prefix)
		}
	})
}
