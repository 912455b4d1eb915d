package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// store is a [cas.Store] of the Leases of a namespace.
type store struct {
	requests, watches *httpstore.Client
	server, namespace string
	prefix            string
	clocks            *httpstore.Clocks
	slots             chan struct{} // a place for each request under way
	closeIdle         func()        // closes the connections on which no request is under way
	sent              func()        // called for each request and watch, if not nil
	limit             time.Duration // of one call
	hold              hold
}

// leases is the URL of all Leases.
func (s *store) leases() string {
	return s.server + "/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases"
}

func (s *store) lease(name string) string { return s.leases() + "/" + name }

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	name, asked := leaseName(s.prefix, key), s.clocks.Elapsed()
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
	return s.valueOf(&l, answer.Now(), asked), nil
}

// valueOf is the value of a Lease, which is unsure also if answers or stamps have shown that the servers' clocks disagree. asked is
// the elapsed time when the read began.
func (s *store) valueOf(l *lease, now time.Time, asked time.Duration) cas.Value {
	var stamps []time.Time
	for _, m := range l.Metadata.ManagedFields {
		stamps = append(stamps, m.Time)
	}
	s.clocks.NoteStamps(l.Metadata.Name, l.Metadata.ResourceVersion, stamps, now, asked)
	v := l.value(now)
	v.Unsure = v.Unsure || s.clocks.Disagree()
	return v
}

// missing is the value of a key without a Lease. One of this name may have been deleted within the present second of the server's
// clock: the version of the list is greater than that of all its writes.
func (s *store) missing(ctx context.Context, name string) (cas.Value, error) {
	query, asked := url.Values{"fieldSelector": {"metadata.name=" + name}, "limit": {"1"}}, s.clocks.Elapsed()
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
		return s.valueOf(&page.Items[0], answer.Now(), asked), nil
	}
	s.clocks.NoteStamps(name, "", nil, answer.Now(), asked)
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

// list returns a page of what a query selects. A later page shows what there was when the first was read, and is judged by the time of
// that, with which after begins.
func (s *store) list(ctx context.Context, prefix, after string, query url.Values) ([]cas.Item, string, error) {
	query.Set("limit", strconv.Itoa(pageSize))
	date, token, _ := strings.Cut(after, " ")
	if token != "" {
		query.Set("continue", token)
	}
	asked := s.clocks.Elapsed()
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.leases() + "?" + query.Encode()})
	if err != nil {
		return nil, "", err
	}
	if next := statusOf(answer).Metadata.Continue; answer.Status == http.StatusGone && next != "" && next != token {
		return nil, " " + next, nil // the list goes on with what there is when that is read
	}
	if !answer.Done() {
		return nil, "", s.refused(answer)
	}
	p, err := pageOf(answer)
	if err != nil {
		return nil, "", err
	}
	now := answer.Now()
	if date != "" {
		if now, err = time.Parse(time.RFC3339, date); err != nil {
			return nil, "", err
		}
	}
	var items []cas.Item
	for _, l := range p.Items {
		if key, ok := s.keyFor(&l); ok && strings.HasPrefix(key, prefix) {
			value := l.value(now)
			if date == "" {
				value = s.valueOf(&l, now, asked)
			}
			value.Unsure = value.Unsure || s.clocks.Disagree()
			items = append(items, cas.Item{Key: key, Value: value})
		}
	}
	if p.Metadata.Continue == "" {
		return items, "", nil
	}
	return items, now.Format(time.RFC3339) + " " + p.Metadata.Continue, nil
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
