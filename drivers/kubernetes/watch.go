package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// A watch ends after a time by chance from watchFor to twice of it, so that not all come at once.
const watchFor = 5 * time.Minute

const (
	// watchSlack is how much later than it should the API server may end a watch.
	watchSlack = 10 * time.Second
	// maxWatch bounds what one watch reads.
	maxWatch = 1 << 30
)

// watch is that of the [cas.Config]. It begins anew when the API server has ended it, as it does every few minutes.
func (s *store) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	for {
		began := time.Now()
		if err := s.watchOnce(ctx, key, changed); err != nil {
			return err
		}
		if time.Since(began) < time.Minute {
			return errors.New("the watch has ended early")
		}
	}
}

// watchOnce reports changes until the API server ends the watch. Without a resourceVersion the watch begins with the present Lease, and
// is in effect when the header of the answer comes.
func (s *store) watchOnce(ctx context.Context, key string, changed func(cas.Value)) error {
	name, seconds := leaseName(s.prefix, key), int(watchFor.Seconds())
	seconds += rand.IntN(seconds)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+watchSlack)
	defer cancel()
	query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + name}, "timeoutSeconds": {strconv.Itoa(seconds)}}
	s.count()
	resp, err := s.watches.Open(ctx, httpstore.Request{Method: http.MethodGet, URL: s.leases() + "?" + query.Encode(),
		Header: http.Header{"Accept": {"application/json"}}})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the watch was refused: %s", resp.Status)
	}
	changed(cas.Value{})
	events := json.NewDecoder(bufio.NewReader(io.LimitReader(resp.Body, maxWatch)))
	for {
		var event struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		switch err := events.Decode(&event); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			var l lease
			if json.Unmarshal(event.Object, &l) != nil {
				return errNoLease
			}
			changed(l.value(time.Time{}))
		case "DELETED":
			changed(cas.Value{})
		case "BOOKMARK":
		default:
			return fmt.Errorf("the watch has ended: %s", driver.Quote(event.Type))
		}
	}
}
