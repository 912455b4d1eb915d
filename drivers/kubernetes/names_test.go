package kubernetes

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// A Lease has the name of its lock where that is one. So it is the Lease of an elector with this name.
func TestLeaseName(t *testing.T) {
	for name, want := range map[string]string{
		"billing":                          "billing",
		"80807133.tutorial.kubebuilder.io": "80807133.tutorial.kubebuilder.io",
		"a-b.c-d":                          "a-b.c-d",
		"x":                                "x",
		"x-ray":                            "x-ray",
		"jobs/nightly":                     "jobs--2fnightly",
		"Billing":                          "x--42illing",
		"/a":                               "x--2fa",
		"x/a":                              "x--78--2fa",
		"a_b":                              "a--5fb",
		"a--b":                             "a--2d-b",
		"a-":                               "a--2d",
		"-a":                               "x--2da",
		"a.":                               "a--2e",
		".a":                               "x--2ea",
		"a..b":                             "a--2e.b",
		"a.-b":                             "a.x--2db",
		"a-.b":                             "a--2d.b",
		"holdfast--probe":                  "holdfast--2d-probe",
		"~probe":                           "x--7eprobe",
		"é":                                "x--c3--a9",
	} {
		key := lockrecord.Key(name)
		if got := leaseName("", key); got != want {
			t.Errorf("the Lease of %q is %q, want %q", name, got, want)
		}
		checkName(t, "", key)
		checkName(t, "team-a.", key)
	}
	checkName(t, "", cas.ProbeKey)
	if got := (&store{prefix: "p-"}).config(settings{}, nil).ProbeValue; got != "the Lease p-holdfast--probe" {
		t.Errorf("a person finds the verdict in %s", got)
	}
	for _, long := range []string{
		strings.Repeat("_", 150), strings.Repeat("É", 90), strings.Repeat("a", 400), strings.Repeat("a.", 75) + "_",
		"a" + strings.Repeat("É", 90), "aa" + strings.Repeat("É", 90),
		strings.Repeat("_", 300)} {
		checkName(t, "", lockrecord.Key(long))
		checkName(t, strings.Repeat("p", 60)+"-", lockrecord.Key(long))
	}
}

func checkName(t *testing.T, prefix, key string) {
	t.Helper()
	lease := leaseName(prefix, key)
	if !isSubdomain(lease) || !strings.HasPrefix(lease, prefix) {
		t.Errorf("the key %q has the Lease %q, which no API server accepts", key, lease)
	}
	if back, ok := keyOf(prefix, lease); ok && back != key || ok == strings.Contains(lease, hashed) {
		t.Errorf("the key %q has the Lease %q, which is read as that of %q, %v", key, lease, back, ok)
	}
}

// FuzzLeaseName searches for two locks with one Lease, and for a Lease that no API server accepts.
func FuzzLeaseName(f *testing.F) {
	f.Add("a", "A")
	f.Add("a.-b", "a-.b")
	f.Add("x--78--2fa", "x/a")
	f.Add(strings.Repeat("_", 200), strings.Repeat("_", 150))
	f.Fuzz(func(t *testing.T, one, two string) {
		if one == "" || two == "" {
			return
		}
		a, b := lockrecord.Key(one), lockrecord.Key(two)
		if (one == two) != (leaseName("", a) == leaseName("", b)) {
			t.Errorf("%q and %q have the Leases %q and %q", one, two, leaseName("", a), leaseName("", b))
		}
		checkName(t, "", a)
		checkName(t, "p-", a)
		if key, ok := keyOf("", two); ok && leaseName("", key) != two {
			t.Errorf("%q is read as the Lease of %q", two, key)
		}
	})
}
