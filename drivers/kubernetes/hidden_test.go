package kubernetes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// slow hands requests to a server after a time, without a network.
type slow struct {
	to    http.Handler
	delay time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.delay)
	answer := httptest.NewRecorder()
	s.to.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// CloseIdleConnections is for client-go: there are none.
func (s *slow) CloseIdleConnections() {}

// An elector counts from the last change of a whole second that it has seen. However late an answer was, by which the renewals after it
// conclude a time, no renewal comes so long after that change that the elector takes over within the TTL of the renewal.
func TestElectorSeesRenewals(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	server := kubernetestest.StartPlain(t)
	worst := time.Duration(0)
	for late := time.Duration(0); late < callLimit; late += callLimit / 7 {
		synctest.Test(t, func(t *testing.T) {
			config, wire := configFor(server.Host()), &slow{to: server}
			config.Transport = wire
			l, err := New(t.Context(), config, kubernetestest.Namespace, onlyReads)
			if err != nil {
				t.Fatal(err)
			}
			lease := acquire(t, l, "op", late.String(), ttl)
			var shown, since time.Time
			for i := range 20 {
				if wire.delay = 0; i == 1 {
					wire.delay = late
				}
				sent := time.Now()
				if lease, err = l.Renew(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
				s := leaseAt(server, "op").Spec
				if second := s.RenewTime.Truncate(time.Second); !second.Equal(shown) {
					shown, since = second, time.Now()
				}
				unseen := sent.Sub(since)
				if worst = max(worst, unseen); unseen > time.Duration(s.seconds())*time.Second-ttl {
					t.Errorf("an answer after %v: renewal %d is %v after what an elector saw last, and it takes over after %d s", late, i, unseen,
						s.seconds())
				}
				time.Sleep(400 * time.Millisecond)
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			_ = l.Close(context.WithoutCancel(t.Context()))
		})
	}
	if worst < 2*time.Second {
		t.Errorf("no renewal was hidden for longer than %v: this shows nothing", worst)
	}
}
