package rivals

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	_ "github.com/holdfast-go/holdfast/drivers/etcd"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

func etcdURL(at string) string { return "etcd://" + at }

func etcdClient(at string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{at}})
}

var etcdRivals = &comparison{
	names: []string{"Holdfast", "concurrency.Mutex"},
	rivals: map[string]rivalIn{
		"Holdfast": {take: holdfastOn(etcdURL), lose: func(ctx context.Context, at string) error {
			c, err := etcdClient(at)
			if err == nil {
				_, err = c.Delete(ctx, "holdfast/"+name)
			}
			return err
		}},
		"concurrency.Mutex": {
			take: func(ctx context.Context, at string) (func(context.Context) (taken, error), error) {
				c, err := etcdClient(at)
				if err != nil {
					return nil, err
				}
				session, err := concurrency.NewSession(c, concurrency.WithTTL(int(ttl.Seconds())))
				return func(ctx context.Context) (taken, error) {
					m := concurrency.NewMutex(session, "/"+name)
					return taken{session.Done, m.Unlock}, m.Lock(ctx)
				}, err
			},
			lose: func(ctx context.Context, at string) error {
				c, err := etcdClient(at)
				if err != nil {
					return err
				}
				leases, err := c.Leases(ctx)
				for _, l := range leases.Leases {
					_, err = c.Revoke(ctx, l.ID)
				}
				return err
			},
		},
	},
	start: func(b *testing.B) string { b.Helper(); return etcdtest.Start(b).Addr() },
	url:   etcdURL,
}
