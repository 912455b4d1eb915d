package web_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/web"
)

// read takes a lock as a reader with another owner.
func (p *page) read(store *memory.Store, owner, name string) *holdfast.Hold {
	p.t.Helper()
	c := locktest.NewClient(p.t, store.Locker(), holdfast.WithOwner(owner))
	h, err := c.TryLock(p.t.Context(), name, holdfast.WithShared())
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// A list says how many share a lock, and is searched by the owner of each. The lock itself is shown with the first of its
// holders, one of which can be broken.
func TestSharedLock(t *testing.T) {
	t.Parallel()
	p := serve(t, web.Options{MayBreak: everybody})
	var holds []*holdfast.Hold
	for i := range 102 {
		holds = append(holds, p.read(p.store, fmt.Sprintf("reader-%d", min(i, 100)), "cache"))
	}
	type lock struct {
		State, Owner, Token string
		Sharing             int
		Holders             []struct {
			Owner, Token string
			RemainingMs  *int64
			Broken       bool
		}
		History []struct{ Owner, Mode string }
	}
	last := strconv.FormatUint(holds[101].Token(), 10)
	var list struct{ Rows []lock }
	if p.get("api/locks?q=reader-99", &list); len(list.Rows) != 1 {
		t.Fatalf("%+v", list)
	}
	if r := list.Rows[0]; r.State != "held" || r.Sharing != 102 || r.Owner != "reader-100" || r.Token != last || len(r.Holders) > 0 {
		t.Errorf("in the list: %+v", r)
	}
	var instances struct {
		Instances []struct {
			Owner     string
			LocksHeld int
		}
	}
	if p.get("api/instances?q=reader&size=500", &instances); len(instances.Instances) != 101 ||
		slices.ContainsFunc(instances.Instances, func(i struct {
			Owner     string
			LocksHeld int
		}) bool {
			return i.LocksHeld != 1
		}) {
		t.Errorf("the instances: %+v", instances)
	}
	// A broken holder, and one that has released the lock.
	first := strconv.FormatUint(holds[0].Token(), 10)
	if code, text := p.post(`{"name":"cache","token":"`+first+`"}`, map[string]string{"X-Holdfast-Token": p.token()}); code != http.StatusOK {
		t.Fatalf("status %d %s", code, text)
	}
	if err := holds[101].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	var one lock
	p.get("api/lock?name=cache", &one)
	if one.State != "held" || one.Sharing != 101 || len(one.Holders) != 100 || one.Token != strconv.FormatUint(holds[100].Token(), 10) {
		t.Fatalf("%+v", one)
	}
	for i, h := range one.Holders {
		if h.Owner != fmt.Sprintf("reader-%d", i) || h.Token != strconv.FormatUint(holds[i].Token(), 10) || h.Broken != (i == 0) ||
			h.RemainingMs == nil {
			t.Errorf("holder %d: %+v", i, h)
		}
	}
	if len(one.History) != 1 || one.History[0].Mode != "shared" {
		t.Errorf("the history: %+v", one.History)
	}
}
