package s3

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// apart returns the URL of a prefix of its own. To remove its objects is the only thing for which the driver deletes.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	own = driverutil.Below(rawURL, name)
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// deleteAll deletes every object with the prefix of a URL.
func deleteAll(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL, onlyReads)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	for page := ""; ; {
		if page, err = l.store.deletePage(ctx, page); err != nil {
			return driverutil.OpError("remove", backend, "", err)
		}
		if page == "" {
			return nil
		}
	}
}

// deleteLimit is the time limit of each request.
const deleteLimit = 5 * time.Second

// deletePage deletes the objects of a page of the list, and returns the next page.
func (s *store) deletePage(ctx context.Context, page string) (next string, err error) {
	limited, cancel := context.WithTimeout(ctx, deleteLimit)
	defer cancel()
	items, next, err := s.List(limited, "", page)
	for _, item := range items {
		if err == nil {
			err = s.remove(ctx, item.Key)
		}
	}
	return next, err
}

func (s *store) remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteLimit)
	defer cancel()
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodDelete, URL: s.object(key)})
	if err == nil && !answer.Done() && !hasNoObject(answer) {
		err = s.refused(answer)
	}
	return err
}
