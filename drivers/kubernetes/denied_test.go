package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// findings are what doctor finds, as text.
func findings(t *testing.T, l *Locker) string {
	t.Helper()
	var b strings.Builder
	if err := l.Check(t.Context(), func(f driver.Finding) {
		fmt.Fprintf(&b, "%s: %s: %s %s %s %s\n", f.Subject, f.Level, f.Detail, f.Remedy, f.Command, f.Server)
	}); err != nil {
		t.Error(err)
	}
	return b.String()
}

// What a person must mend is a lasting error, each kind of its own, with what helps; and doctor says the same.
func TestDenied(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		spoil  func(server *kubernetestest.Server, config *rest.Config) (namespace string)
		want   string
		doctor string
	}{
		"credential": {func(_ *kubernetestest.Server, c *rest.Config) string {
			c.BearerToken = "another-secret"
			return "locks"
		},
			"does not accept the credential", "API server: wrong: the API server does not accept the credential"},
		"namespace": {func(*kubernetestest.Server, *rest.Config) string { return "absent" },
			"namespace absent does not exist: correct the URL, or run: kubectl create namespace absent",
			"API server: wrong: the namespace absent does not exist"},
		"no API server": {func(_ *kubernetestest.Server, c *rest.Config) string { c.Host += "/elsewhere"; return "locks" },
			"does not know Leases", "API server: wrong: the server does not know Leases"},
		"get":    {denies("get"), "cannot get resource", "rights: wrong: the user may not get Leases"},
		"list":   {denies("list"), "cannot list resource", "rights: wrong: the user may not list Leases"},
		"create": {denies("create"), "cannot create resource", "rights: wrong: the user may not create Leases"},
		"patch":  {denies("patch"), "cannot patch resource", "rights: wrong: the user may not patch Leases"},
		"all": {denies("*"), "deploy/kubernetes/locks-role.yaml",
			"rights: wrong: the user may not get, list, watch, create, patch Leases of the namespace locks"},
	} {
		server := kubernetestest.Start(t)
		config := configFor(server.Host())
		namespace := c.spoil(server, config)
		_, err := New(t.Context(), config, namespace)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		reader, err := New(t.Context(), config, namespace, onlyReads)
		if err != nil {
			t.Errorf("%s: opening to examine: %v", what, err)
			continue
		}
		if found := findings(t, reader); !strings.Contains(found, c.doctor) || strings.Contains(found, "secret") {
			t.Errorf("%s: doctor found\n%s, want %q", what, found, c.doctor)
		}
		if err := reader.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A user without the rights to write can inspect and list, and opening writes nothing. A call that needs them says which one is missing.
func TestReading(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	at := server.URL(t)
	lease := acquire(t, open(t, at), "n", "a", 30*time.Second)
	server.Deny("create", "patch")
	writes := func() int { return server.Requests("create") + server.Requests("patch") }
	before := writes()
	d, _ := driver.Describe(at)
	for what, openIt := range map[string]driver.Opener{"reading": d.OpenForReading, "check": d.OpenForCheck} {
		reader, err := openIt(t.Context(), at)
		if err != nil {
			t.Errorf("for %s: %v", what, err)
			continue
		}
		r, err := reader.Inspect(t.Context(), "n")
		if err != nil || r.State != driver.StateHeld || r.Token != lease.Token {
			t.Errorf("for %s: %+v, %v", what, r, err)
		}
		if r, err := reader.Inspect(t.Context(), "m"); err != nil || r.State != driver.StateFree {
			t.Errorf("for %s: a lock without a Lease: %+v, %v", what, r, err)
		}
		listed := 0
		for r, err := range reader.Capabilities().Lister.List(t.Context(), "") {
			if listed++; err != nil || r.Name != "n" || r.Token != lease.Token {
				t.Errorf("for %s: %+v, %v", what, r, err)
			}
		}
		if n := writes(); n != before || listed != 1 {
			t.Errorf("for %s: %d writes, %d locks listed", what, n-before, listed)
		}
		if err := reader.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	l := open(t, at)
	lacks := func(verb string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "cannot "+verb+" resource") {
			t.Errorf("without the right to %s: %v", verb, err)
		}
	}
	_, err := try(t, l, "m", "b", 30*time.Second)
	lacks("create", err)
	_, err = l.Renew(t.Context(), lease)
	lacks("patch", err)
	lacks("patch", l.Release(t.Context(), lease))
}

// The manifest has the rights that doctor asks for, and no other.
func TestRole(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/kubernetes/locks-role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := "rules:\n  - apiGroups: [coordination.k8s.io]\n    resources: [leases]\n    verbs: [" + strings.Join(verbs, ", ") + "]\n---"
	if !strings.Contains(string(manifest), rules) {
		t.Errorf("the manifest lacks\n%s", rules)
	}
}

func denies(verb string) func(*kubernetestest.Server, *rest.Config) string {
	return func(server *kubernetestest.Server, _ *rest.Config) string {
		server.Deny(verb)
		return kubernetestest.Namespace
	}
}

// A refusal that has nothing to do with rights, such as that of a quota or of a webhook, does not send people to the role.
func TestRefusedByAdmission(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	server.SetFaults(func(r kubernetestest.Request) kubernetestest.Fault {
		if r.Verb == "create" {
			return kubernetestest.Fault{Status: http.StatusForbidden}
		}
		return kubernetestest.Fault{}
	})
	_, err := try(t, l, "n", "a", 30*time.Second)
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "a fault of the test") || strings.Contains(err.Error(), "role") {
		t.Error(err)
	}
}

// Doctor finds a cluster in order, and says what it could not examine.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := openRacing(t, server.URL(t))
	want := []string{"API server: ok", "rights: ok: the user may get, list, watch, create, patch", "clocks: ok",
		"Kubernetes v1.36.0", "store: ok", "conditional writes: ok"}
	for _, w := range want {
		if found := findings(t, l); !strings.Contains(found, w) {
			t.Errorf("doctor found\n%s, want %q", found, w)
		}
	}
	for _, name := range server.Names() {
		if strings.Contains(name, "doctor") {
			t.Errorf("doctor has made %s", name)
		}
	}
	server.Deny("review")
	if found := findings(t, l); !strings.Contains(found, "rights: not checked") || !strings.Contains(found, "store: ok") {
		t.Errorf("doctor found\n%s", found)
	}
	server.Deny("watch")
	if _, err := try(t, l, "n", "a", 30*time.Second); err != nil {
		t.Errorf("without the right to watch: %v", err)
	}
	gone := open(t, server.URL(t))
	server.Cut()
	server.SetFaults(func(kubernetestest.Request) kubernetestest.Fault { return kubernetestest.Fault{Unanswered: true} })
	if found := findings(t, gone); !strings.Contains(found, "API server: wrong: it does not answer") {
		t.Errorf("doctor found\n%s", found)
	}
}

// What passes is no lasting error: a server that is busy, is starting or has lost its etcd. It is asked once only.
func TestBusy(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	l := open(t, server.URL(t))
	lease := acquire(t, l, "n", "a", 30*time.Second)
	for _, status := range []int{429, 500, 502, 503, 504} {
		server.SetFaults(func(kubernetestest.Request) kubernetestest.Fault { return kubernetestest.Fault{Status: status} })
		before := server.Requests("get")
		_, err := l.Inspect(t.Context(), "n")
		if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), http.StatusText(status)) ||
			server.Requests("get") != before+1 {
			t.Errorf("%d: %v after %d requests", status, err, server.Requests("get")-before)
		}
		server.SetFaults(nil)
		if _, err := l.Renew(t.Context(), lease); err != nil {
			t.Errorf("after %d: %v", status, err)
		}
	}
}

// A hold survives an outage that is shorter than its lease, and the answers that are lost or come twice meanwhile.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := kubernetestest.StartPlain(t)
	proxy := castest.NewProxy(t, server.Addr())
	l, err := New(t.Context(), configFor("http://"+proxy.Addr()), kubernetestest.Namespace, onlyReads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	lease := acquire(t, l, "n", "a", 60*time.Second)
	for _, mode := range []castest.Mode{castest.Refuse, castest.LoseAnswers, castest.Stall, castest.Double} {
		proxy.Set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		next, err := l.Renew(ctx, lease)
		cancel()
		if err == nil {
			lease = next
		} else if driver.OutcomeKnown(err) {
			t.Errorf("mode %d: %v", mode, err)
		}
		if _, err := l.Inspect(t.Context(), "absent"); mode == castest.Double && err != nil {
			t.Errorf("doubled requests: %v", err)
		}
		proxy.Set(castest.Pass)
		proxy.Cut() // the connection of a doubled request
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatalf("after mode %d: %v", mode, err)
		}
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// A write that the server does twice, or does without an answer, is granted once, and its holder is known.
func TestDoubtfulWrites(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]kubernetestest.Fault{"twice": {Twice: true}, "unanswered": {Unanswered: true}} {
		server := kubernetestest.Start(t)
		l := open(t, server.URL(t))
		writes := 0
		server.SetFaults(func(r kubernetestest.Request) kubernetestest.Fault {
			if r.Verb != "create" && r.Verb != "patch" {
				return kubernetestest.Fault{}
			}
			if writes++; writes%2 == 0 {
				return kubernetestest.Fault{}
			}
			return fault
		})
		lease := acquire(t, l, "n", "a", 30*time.Second)
		if _, err := try(t, l, "n", "b", 30*time.Second); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: a second holder: %v", what, err)
		}
		lease, err := l.Renew(t.Context(), lease)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		next := acquire(t, l, "n", "b", 30*time.Second)
		if s := leaseAt(server, "n").Spec; *s.LeaseTransitions != 1 || next.Token <= lease.Token {
			t.Errorf("%s: %d transitions, the token %d after %d", what, *s.LeaseTransitions, next.Token, lease.Token)
		}
	}
}

// A record that somebody has edited is damaged and stays as it is, one that was removed ends its hold, and fields that a person has
// changed count.
func TestEditedByHand(t *testing.T) {
	t.Parallel()
	l, server, clock := fixed(t)
	lease := acquire(t, l, "n", "a", 10*time.Second)
	mend, err := damage(t, server, "n")
	if err != nil {
		t.Fatal(err)
	}
	version := leaseAt(server, "n").Metadata.ResourceVersion
	if _, err := try(t, l, "n", "b", 10*time.Second); !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("damaged: %v", err)
	}
	if now := leaseAt(server, "n").Metadata.ResourceVersion; now != version {
		t.Error("a damaged record was written")
	}
	mend()
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := server.Edit("n", `{"metadata": {"annotations": {"`+Annotation+`": null}}}`); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, l, "n", "b", 10*time.Second); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("without the record: %v", err)
	}
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal without the record: %v", err)
	}
	clock.Advance(19 * time.Second)
	next := acquire(t, l, "n", "b", 10*time.Second)
	if next.Token <= lease.Token {
		t.Errorf("the token %d after %d", next.Token, lease.Token)
	}
	if err := server.Edit("n", `{"spec": {"holderIdentity": null}}`); err != nil { // kubectl patch frees it
		t.Fatal(err)
	}
	if last := acquire(t, l, "n", "c", 10*time.Second); last.Token <= next.Token {
		t.Errorf("the token %d after %d", last.Token, next.Token)
	}
}
