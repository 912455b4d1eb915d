package azblob

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// headers is a transport that adds headers to the answers for what the emulator lacks.
type headers struct {
	base http.RoundTripper
	set  map[string]string
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.base.RoundTrip(r)
	if err == nil {
		for key, value := range h.set {
			answer.Header.Set(key, value)
		}
	}
	return answer, err
}

// What only Azure has is read from the headers that Azure documents.
func TestCheckHeaders(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	release(t, store.locker(), acquire(t, store.locker(), request("nightly")))
	far := func(d time.Duration) map[string]string {
		return map[string]string{"Date": time.Now().Add(d).UTC().Format(http.TimeFormat)}
	}
	for name, c := range map[string]struct {
		set     map[string]string
		subject string
		level   driver.Level
		remedy  string
	}{
		"versioning": {map[string]string{"x-ms-version-id": "2026-01-02T03:04:05.6789012Z"}, subjectVersioning, driver.LevelDoubtful,
			"without versioning"},
		"no versioning": {nil, subjectVersioning, driver.LevelOK, ""},
		"immutability policy": {map[string]string{"x-ms-has-immutability-policy": "true"}, subjectImmutable, driver.LevelWrong,
			"container of their own"},
		"legal hold":        {map[string]string{"x-ms-has-legal-hold": "true"}, subjectImmutable, driver.LevelWrong, "container of their own"},
		"nothing immutable": {nil, subjectImmutable, driver.LevelOK, ""},
		"clock ahead":       {far(-2 * time.Minute), subjectClock, driver.LevelDoubtful, "Synchronize"},
		"clock far behind":  {far(time.Hour), subjectClock, driver.LevelWrong, "Synchronize"},
		"right clock":       {nil, subjectClock, driver.LevelOK, ""},
		"the program's own": {nil, subjectSoftDelete, driver.LevelUnchecked, "another credential"},
		"lifecycle rules":   {nil, subjectLifecycle, driver.LevelUnchecked, "no rule deletes"},
	} {
		client := store.service.Client(t, store.name, func(base http.RoundTripper) http.RoundTripper { return headers{base: base, set: c.set} })
		l, err := New(client, WithRequestTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		var found []driver.Finding
		if err := l.Check(bounded(t), func(f driver.Finding) {
			if f.Subject == c.subject {
				found = append(found, f)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Level != c.level || !strings.Contains(found[0].Remedy, c.remedy) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// Only requests that leave the machine need encryption.
func TestCheckEncryption(t *testing.T) {
	t.Parallel()
	for host, local := range map[string]bool{"127.0.0.1": true, "localhost": true, "::1": true, "10.0.0.1": false, "azurite": false} {
		if isLoopback(host) != local {
			t.Errorf("%s: %v", host, !local)
		}
	}
}

// A SAS has its expiry in one of several forms.
func TestCheckSASTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-02T03:04:05Z": "2026-01-02T03:04:05Z", "2026-01-02T03:04Z": "2026-01-02T03:04:00Z", "2026-01-02": "2026-01-02T00:00:00Z", "": "",
		"soon": "",
	} {
		got, ok := sasTime(text)
		if ok != (want != "") || ok && got.Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// A record whose token is far ahead of the service's clock is kept, without a wait for that clock.
func TestRemoveProbeKeepsATokenAhead(t *testing.T) {
	t.Parallel()
	l := newTestContainer(t).locker()
	lease := acquire(t, l, request("n"))
	putTokenAhead(t, l, lease)
	release(t, l, lease)
	if err := l.RemoveProbe(bounded(t), "n"); err != nil {
		t.Error(err)
	}
	if next := acquire(t, l, request("n")); next.Token != 9000000000000001 {
		t.Errorf("the next token is %d", next.Token)
	}
}
