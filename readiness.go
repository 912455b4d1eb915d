package holdfast

import (
	"encoding/json"
	"net/http"
)

// Handler returns a readiness probe: 200 while this instance leads and 503 while it
// does not, so that a load balancer sends the leader's work to the leader. It asks
// no backend. The body is JSON: {"name": …, "leading": …, "token": …, "owner": …},
// the last two only while leading.
func (r *LeaderAwareRunner) Handler() http.Handler {
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
		}{Name: r.name}
		code := http.StatusServiceUnavailable
		if t := r.term.Load(); t != nil && t.hold.Err() == nil {
			l := t.hold.Lease()
			status.Leading, status.Token, status.Owner, code = true, l.Token, l.Owner, http.StatusOK
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status) // a client that has gone away is no failure
	})
}
