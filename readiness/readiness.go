// Package readiness answers HTTP probes that ask whether this instance leads, so that a load
// balancer sends the leader's work to the leader. Only programs that serve HTTP need it.
package readiness

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-go/holdfast"
)

// Leader is what a probe asks; a *[holdfast.LeaderAwareRunner] is one.
type Leader interface {
	// Name is the name of the lock.
	Name() string
	// Leading returns the lease under which this instance leads; false if it does not. It
	// asks no backend.
	Leading() (holdfast.Lease, bool)
}

// Handler returns a readiness probe: 200 while the leader leads and 503 while it does not.
// It asks no backend, and allows GET and HEAD. The body is JSON: {"name": …, "leading": …,
// "token": …, "owner": …}, the last two only while leading.
func Handler(leader Leader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		status := struct {
			Name    string `json:"name"`
			Leading bool   `json:"leading"`
			Token   uint64 `json:"token,omitempty"`
			Owner   string `json:"owner,omitempty"`
		}{Name: leader.Name()}
		code := http.StatusServiceUnavailable
		if l, leads := leader.Leading(); leads {
			status.Leading, status.Token, status.Owner, code = true, l.Token, l.Owner, http.StatusOK
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status) // a client that has gone away is no failure
	})
}
