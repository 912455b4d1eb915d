package cas_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// etagStore is a store that speaks HTTP and has ETags, as object stores do. It is all that a driver needs to
// implement.
type etagStore struct {
	url    string // with a slash at its end
	client *http.Client
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
	return cas.Open(ctx, &etagStore{u.String(), http.DefaultClient}, cas.Config{
		Info: driver.Info{Backend: "etag", Expiry: driver.ByServer, Failover: driver.GrantsSurvive, History: history,
			Limits: driver.Limits{MinTTL: 10 * time.Second}},
		ClockStep: time.Second, // the header Date has whole seconds
	})
}

// Get implements cas.Store.
func (s *etagStore) Get(ctx context.Context, key string) (cas.Value, error) {
	status, header, body, err := s.send(ctx, http.MethodGet, url.PathEscape(key), nil, "", "")
	if err != nil {
		return cas.Value{}, err
	}
	now, err := http.ParseTime(header.Get("Date"))
	switch {
	case err != nil:
		return cas.Value{}, err
	case status == http.StatusNotFound:
		return cas.Value{Now: now}, nil
	case status != http.StatusOK:
		return cas.Value{}, failed(status)
	}
	return cas.Value{Data: body, Version: header.Get("ETag"), Now: now}, nil
}

// Put implements cas.Store.
func (s *etagStore) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	condition, value := "If-Match", version
	if version == "" {
		condition, value = "If-None-Match", "*"
	}
	status, header, _, err := s.send(ctx, http.MethodPut, url.PathEscape(key), data, condition, value)
	switch {
	case err != nil:
		return cas.Written{}, err
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, status == http.StatusNotFound: // If-Match without a value
		return cas.Written{}, cas.ErrConflict
	case status/100 != 2:
		return cas.Written{}, failed(status)
	}
	now, err := http.ParseTime(header.Get("Date"))
	return cas.Written{Version: header.Get("ETag"), Now: now}, err
}

// List implements cas.Store. Other stores have other parameters, and XML.
func (s *etagStore) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	query := url.Values{"prefix": {prefix}, "continuation-token": {page}}
	status, _, body, err := s.send(ctx, http.MethodGet, "?"+query.Encode(), nil, "", "")
	if err == nil && status != http.StatusOK {
		err = failed(status)
	}
	var list struct {
		Keys []string
		Next string
	}
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	items := make([]cas.Item, len(list.Keys))
	for i, key := range list.Keys {
		items[i].Key = key
	}
	return items, list.Next, err
}

// send makes one request. The errors of http.Client hide a password in the URL.
func (s *etagStore) send(ctx context.Context, method, path string, body []byte, condition, value string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	if condition != "" {
		req.Header.Set(condition, value)
	}
	answer, err := s.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = answer.Body.Close() }() // everything was read
	body, err = io.ReadAll(io.LimitReader(answer.Body, 4<<20))
	return answer.StatusCode, answer.Header, body, err
}

// failed is the error for an answer. A refusal for lack of rights changed nothing, and stays.
func failed(status int) error {
	err := fmt.Errorf("the store answered %d %s", status, http.StatusText(status))
	if status == http.StatusForbidden || status == http.StatusUnauthorized {
		return driver.Denied(err)
	}
	return err
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
