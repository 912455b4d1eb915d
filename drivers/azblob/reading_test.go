package azblob

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/holdfast-go/holdfast/driver"
)

// A SAS that may only read is enough to read locks; to list them, it must have the right to list.
// Reading makes no container.
func TestReadingNeedsNoRightToWrite(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	store := newTestContainer(t)
	holder, err := New(store.client)
	if err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, holder, request("job"))
	for _, c := range []struct {
		may       sas.ContainerPermissions
		listFails bool
	}{{sas.ContainerPermissions{Read: true, List: true}, false}, {sas.ContainerPermissions{Read: true}, true}} {
		client, err := container.NewClientWithNoCredential(store.client.URL()+"?"+sasOf(t, store.client, c.may), nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := New(client)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := l.Inspect(ctx, "job"); err != nil || r.Token != lease.Token || r.Owner != lease.Owner {
			t.Errorf("%+v reads %v, error %v", c.may, r, err)
		}
		if r, err := l.Inspect(ctx, "other"); err != nil || r.State != driver.StateFree {
			t.Errorf("%+v reads a lock without a blob as %v, error %v", c.may, r, err)
		}
		if missing, err := driver.MissingStore(ctx, l); missing != "" || err != nil {
			t.Errorf("%+v: missing: %q, error %v", c.may, missing, err)
		}
		found := 0
		for r, err := range l.List(ctx, "") {
			if (err != nil) != c.listFails || err == nil && r.Token != lease.Token {
				t.Errorf("%+v lists %v, error %v", c.may, r, err)
			}
			found++
		}
		if found != 1 {
			t.Errorf("%+v lists %d locks", c.may, found)
		}
	}

	name := store.service.Fresh(t)
	none := store.service.Client(t, name, nil)
	l, err := New(none)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := l.Inspect(ctx, "job"); err != nil || r.State != driver.StateFree {
		t.Errorf("without a container the lock is %v, error %v", r, err)
	}
	if missing, err := driver.MissingStore(ctx, l); missing != "the container" || err != nil {
		t.Errorf("missing: %q, error %v", missing, err)
	}
	if missing, err := driver.MissingStore(ctx, &Locker{container: none, config: l.config, closing: l.closing,
		origin: &origin{location: location{container: name}}}); missing != "the container "+name || err != nil {
		t.Errorf("missing: %q, error %v", missing, err)
	}
}
