package azblob

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"billing-2_A": "billing-2_A", "a/b": "a=2Fb", ".": "=2E", "..": "=2E=2E", "a.": "a=2E", "=": "=3D", "a=2Fb": "a=3D2Fb", "é": "=C3=A9",
		"\x00": "=00",
	} {
		if got := escape(name); got != want {
			t.Errorf("escape(%q) = %q, want %q", name, got, want)
		}
		if back, ok := unescape(want); !ok || back != name {
			t.Errorf("unescape(%q) = %q, %v", want, back, ok)
		}
	}
	for _, alien := range []string{"", "a/b", "a.b", "=", "=2", "=2f", "=41", "=GG", "a=", "é"} {
		if name, ok := unescape(alien); ok {
			t.Errorf("unescape(%q) = %q, although escape never makes it", alien, name)
		}
	}
	longest := strings.Repeat("/", limits.MaxName)
	if n := maxPrefix + len(escape(longest)); n > 1024 {
		t.Errorf("a blob's name may get %d bytes long", n)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a", "b")
	f.Add("a/b", "a=2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		if back, ok := unescape(escape(a)); !ok || back != a {
			t.Errorf("%q comes back as %q", a, back)
		}
		if (escape(a) == escape(b)) != (a == b) || strings.HasPrefix(escape(a), escape(b)) != strings.HasPrefix(a, b) {
			t.Errorf("%q and %q become %q and %q", a, b, escape(a), escape(b))
		}
		if len(escape(a)) > 3*len(a) {
			t.Errorf("%q becomes %q", a, escape(a))
		}
		if name, ok := unescape(b); ok && escape(name) != b {
			t.Errorf("the blob %q is listed as %q, whose blob is %q", b, name, escape(name))
		}
	})
}

// FuzzID compares canonicalID with a regular expression.
func FuzzID(f *testing.F) {
	f.Add("0123abcd-4567-89AB-cdef-0123456789ab")
	f.Add("{0123abcd-4567-89AB-cdef-0123456789a}")
	uuid := regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z`)
	f.Fuzz(func(t *testing.T, id string) {
		got, ok := canonicalID(id)
		if ok != (uuid.MatchString(id) && len(id) == 36) || ok && got != strings.ToLower(id) {
			t.Errorf("%q: %q, %v", id, got, ok)
		}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	const id = "0123abcd-4567-89AB-cdef-0123456789ab"
	if got, ok := canonicalID(id); !ok || got != strings.ToLower(id) {
		t.Errorf("%q, %v", got, ok)
	}
	for _, bad := range []string{"", "x", id + "0", id[1:] + "g", strings.ReplaceAll(id, "-", "0"), "{" + id[:34] + "}",
		id[:8] + "--" + id[10:]} {
		if _, ok := canonicalID(bad); ok {
			t.Errorf("%q passes for a UUID", bad)
		}
	}
	store := newTestContainer(t)
	l := store.locker()
	req := request("n")
	req.ID = driver.NewLeaseID("not a UUID")
	var invalid *driver.InvalidError
	if _, err := l.TryAcquire(bounded(t), req); !errors.As(err, &invalid) || invalid.Field != "ID" {
		t.Errorf("acquire: %v", err)
	}
	lease := driver.Lease{Name: "n", ID: req.ID, TTL: time.Minute}
	if _, err := l.Renew(bounded(t), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := l.WriteData(bounded(t), lease, nil, grantRevision(lease)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("write data: %v", err)
	}
	release(t, l, lease)
	req.ID = driver.NewLeaseID(strings.ToUpper(newID())) // the case of an ID does not matter
	lease = acquire(t, l, req)
	lease.ID = driver.NewLeaseID(strings.ToLower(req.ID.Reveal()))
	if _, err := l.Renew(bounded(t), lease); err != nil {
		t.Error(err)
	}
	if again := acquire(t, l, req); again.Token != lease.Token {
		t.Errorf("a repeat got token %d after %d", again.Token, lease.Token)
	}
	release(t, l, lease)
	if r := inspect(t, l, "n"); r.State != driver.StateFree {
		t.Errorf("%+v", r)
	}
}
