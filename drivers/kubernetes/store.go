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
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// store is a [cas.Store] of the Leases of a namespace.
type store struct {
	requests, watches *httpstore.Client
	server, namespace string
	prefix            string
	clocks            clocks
	slots             chan struct{} // a place for each request under way
}

// maxRequests is how many requests are under way at a time. client-go keeps 25 idle connections: with more requests each of the others
// would cost a handshake.
const maxRequests = 24

// leases is the URL of all Leases.
func (s *store) leases() string {
	return s.server + "/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases"
}

func (s *store) lease(name string) string { return s.leases() + "/" + name }

// send makes a request and notes the time of the answer.
func (s *store) send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept", "application/json")
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return httpstore.Answer{}, ctx.Err()
	}
	sent := s.clocks.elapsed()
	answer, err := s.requests.Send(ctx, r)
	if err == nil {
		s.clocks.note(answer.Now(), sent)
	}
	return answer, err
}

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	name := leaseName(s.prefix, key)
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.lease(name)})
	switch {
	case err != nil:
		return cas.Value{}, err
	case answer.Missing() && statusOf(answer).Details.Kind == "leases":
		return s.missing(ctx, name)
	case !answer.Done():
		return cas.Value{}, s.refused(answer)
	}
	var l lease
	if err := json.Unmarshal(answer.Body, &l); err != nil || l.Metadata.ResourceVersion == "" {
		return cas.Value{}, errNoLease
	}
	return s.valueOf(&l, answer.Now()), nil
}

// valueOf is the value of a Lease, which is unsure also if answers have shown that the servers' clocks disagree.
func (s *store) valueOf(l *lease, now time.Time) cas.Value {
	v := l.value(now)
	v.Unsure = v.Unsure || s.clocks.disagree()
	return v
}

// errNoLease is the error for an answer of something that is no API server.
var errNoLease = errors.New("the answer is no Lease: is there another server between this program and the API server?")

// missing is the value of a key without a Lease. One of this name may have been deleted within the present second of the server's
// clock: the version of the list is greater than that of all its writes.
func (s *store) missing(ctx context.Context, name string) (cas.Value, error) {
	query := url.Values{"fieldSelector": {"metadata.name=" + name}, "limit": {"1"}}
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.leases() + "?" + query.Encode()})
	if err != nil {
		return cas.Value{}, err
	}
	if !answer.Done() {
		return cas.Value{}, s.refused(answer)
	}
	page, err := pageOf(answer)
	if err != nil {
		return cas.Value{}, err
	}
	if len(page.Items) > 0 { // it was made meanwhile
		return s.valueOf(&page.Items[0], answer.Now()), nil
	}
	return cas.Value{Now: answer.Now(), Order: order(page.Metadata.ResourceVersion)}, nil
}

// Put implements [cas.Store].
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	name := leaseName(s.prefix, key)
	text, err := body(name, data, version)
	if err != nil {
		return cas.Written{}, err
	}
	r := httpstore.Request{Method: http.MethodPost, URL: s.leases(), Body: text, Header: http.Header{"Content-Type": {"application/json"}}}
	if version != "" {
		r.Method, r.URL = http.MethodPatch, s.lease(name)
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.URL += "?fieldManager=" + agent
	answer, err := s.send(ctx, r)
	if err != nil {
		return cas.Written{}, err
	}
	switch kind := statusOf(answer).Details.Kind; {
	case answer.Status == http.StatusConflict, answer.Missing() && version != "" && kind == "leases":
		return cas.Written{}, cas.ErrConflict
	case !answer.Done():
		return cas.Written{}, s.refused(answer)
	}
	var l lease
	if err := json.Unmarshal(answer.Body, &l); err != nil || l.Metadata.ResourceVersion == "" {
		return cas.Written{}, errNoLease
	}
	return cas.Written{Version: l.Metadata.ResourceVersion, Now: answer.Now()}, nil
}

// pageSize is how many Leases a page has.
const pageSize = 250

// page is a page of a list.
type page struct {
	Metadata struct {
		Continue        string `json:"continue"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []lease `json:"items"`
}

func pageOf(answer httpstore.Answer) (p page, err error) {
	if json.Unmarshal(answer.Body, &p) != nil || p.Metadata.ResourceVersion == "" {
		return p, errNoLease
	}
	return p, nil
}

// List implements [cas.Store]. The Leases of other programs do not have the label.
func (s *store) List(ctx context.Context, prefix, after string) ([]cas.Item, string, error) {
	return s.list(ctx, prefix, after, url.Values{"labelSelector": {label + "=" + labelValue}})
}

// keysAPage is for how many keys a page of a list is read instead of each by itself.
const keysAPage = 10

// GetBatch implements [cas.BatchGetter].
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	return cas.GetByList(ctx, everyLease{s}, keys, len(keys)/keysAPage)
}

// everyLease is a store whose lists have the Leases of electors, too.
type everyLease struct{ *store }

// List implements [cas.Store].
func (e everyLease) List(ctx context.Context, prefix, after string) ([]cas.Item, string, error) {
	return e.list(ctx, prefix, after, url.Values{})
}

// list returns a page of what a query selects.
func (s *store) list(ctx context.Context, prefix, after string, query url.Values) ([]cas.Item, string, error) {
	query.Set("limit", strconv.Itoa(pageSize))
	if after != "" {
		query.Set("continue", after)
	}
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.leases() + "?" + query.Encode()})
	if err != nil {
		return nil, "", err
	}
	if !answer.Done() {
		return nil, "", s.refused(answer)
	}
	p, err := pageOf(answer)
	if err != nil {
		return nil, "", err
	}
	var items []cas.Item
	for _, l := range p.Items {
		if key, ok := s.keyFor(&l); ok && strings.HasPrefix(key, prefix) {
			items = append(items, cas.Item{Key: key, Value: s.valueOf(&l, answer.Now())})
		}
	}
	return items, p.Metadata.Continue, nil
}

// keyFor returns the key of a Lease: that of its record, or, without one that can be read, that of its name. A Lease whose record
// belongs to another name has another prefix, or is a copy.
func (s *store) keyFor(l *lease) (key string, ok bool) {
	if present, is := cas.ReadPresent([]byte(l.Metadata.Annotations[Annotation])); is {
		key = lockrecord.Key(present.Name)
		return key, leaseName(s.prefix, key) == l.Metadata.Name
	}
	return keyOf(s.prefix, l.Metadata.Name)
}

// status is what the API server says of a request that it has refused.
type status struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Details struct {
		Kind   string `json:"kind"`
		Causes []struct {
			Reason string `json:"reason"`
		} `json:"causes"`
	} `json:"details"`
}

func statusOf(answer httpstore.Answer) (s status) {
	if json.Unmarshal(answer.Body, &s) != nil || s.Kind != "Status" {
		return status{}
	}
	return s
}

// refused is the error for an answer that is not what was asked for, with what helps.
func (s *store) refused(answer httpstore.Answer) error {
	st := statusOf(answer)
	err := answer.Failed(st.Message)
	switch {
	case answer.Missing() && st.Details.Kind == "namespaces":
		return driver.Denied(fmt.Errorf("the namespace %[1]s does not exist: correct the URL, or run: kubectl create namespace %[1]s",
			s.namespace))
	case answer.Missing():
		return driver.Denied(errors.New("the server does not know Leases (404): is it the API server of Kubernetes 1.14 or later?"))
	case answer.Status == http.StatusUnauthorized:
		return driver.Denied(errors.New("the API server does not accept the credential (401 Unauthorized): it may have expired, or client-go " +
			"has not sent it to an address of http:; kubectl auth whoami, with the same kubeconfig and context, shows it"))
	case answer.Status == http.StatusForbidden && len(st.Details.Causes) > 0 && st.Details.Causes[0].Reason == "NamespaceTerminating":
		return driver.Denied(fmt.Errorf("the namespace %s is being deleted (403)", s.namespace))
	case answer.Status == http.StatusForbidden:
		return fmt.Errorf("%w; the rights that locks need are in deploy/kubernetes/locks-role.yaml", err)
	}
	return err
}

// A watch ends after a time by chance from watchFor to twice of it, so that not all come at once.
const watchFor = 5 * time.Minute

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

const (
	// watchSlack is how much later than it should the API server may end a watch.
	watchSlack = 10 * time.Second
	// maxWatch bounds what one watch reads.
	maxWatch = 1 << 30
)
