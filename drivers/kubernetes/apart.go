package kubernetes

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// apart returns the URL of a prefix of its own. To remove its Leases is the only thing for which the driver needs the verb delete.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	_, opts, err := parseURL(rawURL)
	if err != nil {
		return rawURL, func(context.Context) error { return err }
	}
	var c settings
	for _, o := range opts {
		o(&c)
	}
	own = driverutil.WithParam(rawURL, paramPrefix, c.prefix+strings.ReplaceAll(name, "_", "-")+"-")
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// deleteAll deletes every Lease with the prefix of a URL.
func deleteAll(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL, onlyReads)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	for after := ""; ; {
		if after, err = l.store.deletePage(ctx, after); err != nil {
			return driverutil.OpError("remove", backend, "", err)
		}
		if after == "" {
			return nil
		}
	}
}

// deleteLimit is the time limit of each request.
const deleteLimit = 5 * time.Second

// deletePage deletes the Leases of a page of the list, and returns where the next one begins.
func (s *store) deletePage(ctx context.Context, after string) (next string, err error) {
	limited, cancel := context.WithTimeout(ctx, deleteLimit)
	defer cancel()
	items, next, err := s.list(limited, "", after, url.Values{"labelSelector": {label + "=" + labelValue}})
	for _, item := range items {
		if err == nil {
			err = s.remove(ctx, leaseName(s.prefix, item.Key))
		}
	}
	return next, err
}

func (s *store) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteLimit)
	defer cancel()
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodDelete, URL: s.lease(name)})
	if err == nil && !answer.Done() && !answer.Missing() {
		err = s.refused(answer)
	}
	return err
}
