package etcd

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// A member of another cluster is refused, when the Locker is opened and later, and nothing is written there.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	one := etcdtest.Start(t)
	other := etcdtest.Start(t, "--initial-cluster-token=other")
	if _, err := Open(t.Context(), etcdtest.URLOf(one, other)); !errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "several clusters") {
		t.Errorf("opened with members of two clusters: %v", err)
	}
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	l := openAt(t, etcdtest.URLOf(one, other), WithRequestTimeout(time.Second))
	if err := errors.Join(other.Restart(context.WithoutCancel(t.Context())), one.Stop()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "a")); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("acquired with the member of another cluster: %v", err)
	}
	if _, err := l.store.Put(t.Context(), "n", []byte("v"), ""); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("written to the member of another cluster: %v", err)
	}
	if r, err := openAt(t, other.URL(), onlyReads).Inspect(t.Context(), "n"); err != nil || r.Token != 0 {
		t.Errorf("the other cluster has %+v, %v", r, err)
	}
	if err := one.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(t.Context(), request("n", "b")); err != nil {
		t.Errorf("after the member was started again: %v", err)
	}
	// The only member is one of another cluster now: a person must say whether that is meant.
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	f.set(methodRange, reply{message: from(70)})
	f.set(methodTxn, reply{message: done(70)})
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || driver.OutcomeKnown(err) {
		t.Errorf("a write to a member that has become one of another cluster: %v", err)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a read there: %v", err)
	}
	if before := f.requests(methodTxn); before != 1 {
		t.Fatal(before)
	}
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); !errors.Is(err, driver.ErrDenied) || f.requests(methodTxn) != 1 {
		t.Errorf("the next write there: %v, after %d writes", err, f.requests(methodTxn))
	}
}

// A member that has failed is looked at before the next write: it may have come back as one of another cluster.
func TestLookAfterFailure(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	if _, err := s.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	f.set(methodTxn, reply{do: func() { panic(http.ErrAbortHandler) }})
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); err == nil || f.requests(methodTxn) != 1 {
		t.Fatal(err)
	}
	f.set(methodRange, reply{message: from(70)})
	if _, err := s.Put(t.Context(), "k", []byte("v"), ""); !errors.Is(err, driver.ErrDenied) || f.requests(methodTxn) != 1 {
		t.Errorf("%v, after %d writes", err, f.requests(methodTxn))
	}
}

// What a member of another cluster says is forgotten before the next one is asked.
func TestAnswerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	first, second := startFake(t), startFake(t)
	s := storeAt(t, urlOf(first.addr(), second.addr()))
	if _, err := s.Get(t.Context(), "k"); err != nil { // it is in the cluster 7
		t.Fatal(err)
	}
	first.set(methodRange, reply{message: appendBytes(from(70), 2, keyOf("v", 5))})
	if v, err := s.Get(t.Context(), "k"); err != nil || v.Version != "" || second.requests(methodRange) != 1 {
		t.Errorf("%+v, %v, after %d requests to the second member", v, err, second.requests(methodRange))
	}
}

// A request that ends while the Locker is closed makes no more connections: nobody would close them.
func TestSilentAfterClose(t *testing.T) {
	t.Parallel()
	s := storeAt(t, urlOf(startFake(t).addr()))
	one := s.members.all[0]
	s.members.close()
	used := one.connections
	if s.members.silent(one, used); one.connections != used {
		t.Error("there are other connections")
	}
}
