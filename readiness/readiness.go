// Package readiness has an HTTP probe that reports whether this instance leads, so that a load
// balancer can send requests to the leader only. Only programs that serve HTTP need it.
package readiness

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Leader is what a probe reports about. A *[holdfast.LeaderAwareRunner] implements it.
type Leader interface {
	// Name returns the name of the lock.
	Name() string
	// Leading returns the lease under which this instance leads, or false if it does not
	// lead. It does no I/O.
	Leading() (holdfast.Lease, bool)
}

// Handler returns a readiness probe. It answers 200 while this instance leads, and 503 while it does
// not. It allows GET and HEAD, and does no I/O. The body is JSON: {"name": …, "leading": …,
// "token": …, "owner": …}, with token and owner only while this instance leads. Handler panics if leader is nil.
func Handler(leader Leader) http.Handler {
	// A nil runner is what a program has that ignores the error of NewLeaderAwareRunner.
	if r, ok := leader.(*holdfast.LeaderAwareRunner); leader == nil || ok && r == nil {
		panic(driver.Invalid("leader", "nil", "a Leader, such as a *holdfast.LeaderAwareRunner").Error())
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
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
		_ = json.NewEncoder(w).Encode(status) // an error means that the client has disconnected
	})
}
