package dynamodb

import (
	"context"

	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
)

// apart returns the URL of a prefix of its own. To remove its items is the only thing for which the driver deletes.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	own = driverutil.Below(rawURL, name)
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// deleteAll deletes every item with the prefix of a URL.
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

// deletePage deletes the items of a page of the table, those of longer prefixes included, and returns the next page.
func (s *store) deletePage(ctx context.Context, page string) (next string, err error) {
	limited, cancel := context.WithTimeout(ctx, dynamo.AskLimit)
	defer cancel()
	found, next, err := s.scan(limited, s.prefix, page)
	for _, i := range found {
		if err == nil {
			err = s.remove(ctx, item{attrKey: i[attrKey]})
		}
	}
	return next, err
}

func (s *store) remove(ctx context.Context, key item) error {
	return s.AskBriefly(ctx, "DeleteItem", struct {
		TableName string
		Key       item
	}{s.Name, key}, &struct{}{})
}
