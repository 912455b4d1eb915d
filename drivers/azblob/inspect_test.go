package azblob

import (
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// A lease state that is missing or not known here is reported as unknown.
func TestMissingLeaseState(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l, w := store.lockerWithFaults()
	held := acquire(t, l, request("n"))
	for _, word := range []string{"", "resting"} {
		w.all(reqDownload, func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil {
				resp.Header.Del("x-ms-lease-state")
				if word != "" {
					resp.Header.Set("x-ms-lease-state", word)
				}
			}
			return resp, err
		})
		w.all(reqList, rewrite("<LeaseState>leased</LeaseState>", "<LeaseState>"+word+"</LeaseState>"))
		if r := inspect(t, l, "n"); r.State != driver.StateUnknown || r.Owner != "" || r.Token != held.Token {
			t.Errorf("state %q: %+v", word, r)
		}
		for r, err := range l.List(bounded(t), "") {
			if err != nil || r.State != driver.StateUnknown || r.Owner != "" {
				t.Errorf("state %q, listed: %+v, %v", word, r, err)
			}
		}
	}
}
