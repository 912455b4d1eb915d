package cas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// etagStore is a store that speaks HTTP and has ETags, as object stores do. It is all that a driver needs to
// implement.
type etagStore struct {
	url    string // with a slash at its end
	client *httpstore.Client
}

// openETag makes the Locker. A driver registers it in an init function, in its driver.Description.
func openETag(ctx context.Context, rawURL string) (driver.Locker, error) {
	u, query, err := driverutil.ParseURL(rawURL, "etag://HOST/PATH/", driver.ParamHistory)
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, driver.Invalid("URL", "without a host", "etag://HOST/PATH/") // the URL may have a password
	}
	history, err := driver.HistoryParam(query)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.RawQuery = "http", ""
	return cas.Open(ctx, &etagStore{u.String(), httpstore.New(http.DefaultClient, 4<<20)}, cas.Config{
		Info: driver.Info{Backend: "etag", Expiry: driver.ByServer, Failover: driver.GrantsSurvive, History: history,
			Limits: driver.Limits{MinTTL: 10 * time.Second}},
		ClockStep: httpstore.DateStep,
	})
}

// Get implements cas.Store.
func (s *etagStore) Get(ctx context.Context, key string) (cas.Value, error) {
	answer, err := s.send(ctx, http.MethodGet, url.PathEscape(key), nil, "", "")
	switch {
	case err != nil:
		return cas.Value{}, err
	case answer.Missing():
		return cas.Value{Now: answer.Now()}, nil
	case !answer.Done():
		return cas.Value{}, answer.Failed("")
	}
	return cas.Value{Data: answer.Body, Version: answer.Header.Get("ETag"), Now: answer.Now()}, nil
}

// Put implements cas.Store.
func (s *etagStore) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	condition, value := "If-Match", version
	if version == "" {
		condition, value = "If-None-Match", "*"
	}
	answer, err := s.send(ctx, http.MethodPut, url.PathEscape(key), data, condition, value)
	switch {
	case err != nil:
		return cas.Written{}, err
	case answer.Refused():
		return cas.Written{}, cas.ErrConflict
	case !answer.Done():
		return cas.Written{}, answer.Failed("")
	}
	return cas.Written{Version: answer.Header.Get("ETag"), Now: answer.Now()}, nil
}

// List implements cas.Store. Other stores have other parameters, and XML.
func (s *etagStore) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	query := url.Values{"prefix": {prefix}, "continuation-token": {page}}
	answer, err := s.send(ctx, http.MethodGet, "?"+query.Encode(), nil, "", "")
	if err == nil && !answer.Done() {
		err = answer.Failed("")
	}
	var list struct {
		Keys []string
		Next string
	}
	if err == nil {
		err = json.Unmarshal(answer.Body, &list)
	}
	items := make([]cas.Item, len(list.Keys))
	for i, key := range list.Keys {
		items[i].Key = key
	}
	return items, list.Next, err
}

// send makes one request.
func (s *etagStore) send(ctx context.Context, method, path string, body []byte, condition, value string) (httpstore.Answer, error) {
	r := httpstore.Request{Method: method, URL: s.url + path, Header: http.Header{}, Body: body}
	if condition != "" {
		r.Header.Set(condition, value)
	}
	return s.client.Send(ctx, r)
}

// A driver for a store with ETags.
func ExampleOpen() {
	server := httptest.NewServer(newETagServer(time.Now))
	defer server.Close()
	ctx := context.Background()
	locker, err := openETag(ctx, "etag:"+server.URL[len("http:"):]+"/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close(ctx) }()
	lease, err := locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("1"), Owner: "host/1", TTL: 30 * time.Second})
	fmt.Println(lease.Owner, err)
	_, err = locker.TryAcquire(ctx, driver.Request{Name: "billing", ID: driver.NewLeaseID("2"), Owner: "host/2", TTL: 30 * time.Second})
	fmt.Println(err != nil)
	// Output:
	// host/1 <nil>
	// true
}
