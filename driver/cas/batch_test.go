package cas_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// batchStore is a store that reads many values at a time. read, if not nil, does that.
type batchStore struct {
	*memStore
	read    func(ctx context.Context, keys []string) ([]cas.Value, error)
	batches int
	lists   int
}

func (s *batchStore) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	s.batches++
	if len(keys) > 1000 {
		return nil, errors.New("too many keys")
	}
	if s.read != nil {
		return s.read(ctx, keys)
	}
	return s.each(ctx, keys)
}

// each reads without a Get of the Locker.
func (s *batchStore) each(ctx context.Context, keys []string) (values []cas.Value, err error) {
	for _, key := range keys {
		if err := s.wait(ctx, key); err != nil {
			return nil, err
		}
		s.mu.Lock()
		v := s.values[key]
		if s.now != nil && v.Version != "" {
			v.Now = s.now()
		}
		s.mu.Unlock()
		values = append(values, v)
	}
	return values, nil
}

func (s *batchStore) List(ctx context.Context, prefix, page string) ([]cas.Item, string, error) {
	s.lists++
	return s.memStore.List(ctx, prefix, page)
}

// held makes a batchStore in which every tenth of n locks is held, and returns the names.
func held(t *testing.T, n int) (s *batchStore, l *cas.Locker, names []string) {
	clock := locktest.NewClock()
	s = &batchStore{memStore: newStore()}
	s.now = clock.Now
	l = open(t, s, cas.Config{Info: driver.Info{Expiry: driver.ByServer}})
	for i := range n {
		names = append(names, fmt.Sprint("lock", i))
		if i%10 == 0 {
			mustAcquire(t, l, request(names[i], "a", time.Minute))
		}
	}
	s.gets, s.batches, s.lists = 0, 0, 0
	return s, l, names
}

func checkBatch(t *testing.T, l *cas.Locker, names []string) {
	t.Helper()
	records, errs := l.InspectBatch(t.Context(), "", names)
	for i, r := range records {
		want := driver.StateFree
		if i%10 == 0 {
			want = driver.StateHeld
		}
		if errs[i] != nil || r.Name != names[i] || r.State != want || want == driver.StateHeld && r.Remaining != time.Minute {
			t.Errorf("%q: %v, %v", names[i], r, errs[i])
		}
	}
}

// A store that reads many values at a time is asked once for a thousand names, most of which have no value.
func TestInspectBatchOfAStoreThatReadsMany(t *testing.T) {
	s, l, names := held(t, 2500)
	checkBatch(t, l, names)
	if s.batches != 3 || s.gets != 0 {
		t.Errorf("%d batches and %d single reads for 2500 names, want 3 and 0", s.batches, s.gets)
	}
	s.batches = 0
	if checkBatch(t, l, names[:1]); s.batches != 0 {
		t.Error("a batch for one name")
	}
}

// A name that is damaged or not valid, or may not be read, fails by itself; a batch that fails, or is not whole, fails for all.
func TestInspectBatchThatFails(t *testing.T) {
	s, l, names := held(t, 30)
	if _, err := s.damage(t.Context(), names[10]); err != nil {
		t.Fatal(err)
	}
	fails := func(what string, names []string, want map[int]error) {
		t.Helper()
		records, errs := l.InspectBatch(t.Context(), "", names)
		for i, err := range errs {
			if !errors.Is(err, want[i]) || err == nil && records[i].Name != names[i] {
				t.Errorf("%s: %.20q: %v, %v, want %v", what, names[i], records[i], err, want[i])
			}
		}
	}
	names[5] = strings.Repeat("long", 1000)
	fails("single", names, map[int]error{5: driver.ErrInvalid, 10: driver.ErrDamaged})
	if _, err := s.deny(t.Context(), names[20]); err != nil {
		t.Fatal(err)
	}
	fails("denied", names, map[int]error{5: driver.ErrInvalid, 10: driver.ErrDamaged, 20: driver.ErrDenied})
	for what, read := range map[string]func(context.Context, []string) ([]cas.Value, error){
		"no answer": func(context.Context, []string) ([]cas.Value, error) { return nil, errNoAnswer },
		"too few": func(_ context.Context, keys []string) ([]cas.Value, error) {
			return make([]cas.Value, len(keys)-1), nil
		},
	} {
		s.read, s.gets = read, 0
		_, errs := l.InspectBatch(t.Context(), "", names[:4])
		if errs[0] == nil || errs[3] == nil || driver.OutcomeKnown(errs[0]) || s.gets != 0 {
			t.Errorf("%s: %v after %d single reads", what, errs, s.gets)
		}
	}
	// Of a batch that could not read some values, only those names fail: by that error, without a read of their own, unless it is a refusal.
	s.read = func(ctx context.Context, keys []string) ([]cas.Value, error) {
		values, err := s.each(ctx, keys)
		return values, errors.Join(err, cas.BatchError{keyOf(names[3]): errNoAnswer, keyOf(names[4]): driver.Denied(errNoAnswer)})
	}
	s.gets = 0
	if fails("in part", names[:5], map[int]error{3: errNoAnswer}); s.gets != 1 {
		t.Errorf("%d single reads, want that of the name that was refused", s.gets)
	}
}

// A list costs less than a read of each of many names, and no more than twice as much if there are many others.
func TestGetByList(t *testing.T) {
	s, l, names := held(t, 1000)
	pages := 100
	s.read = func(ctx context.Context, keys []string) ([]cas.Value, error) {
		return cas.GetByList(ctx, s, keys, pages)
	}
	checkBatch(t, l, names)
	if s.gets > 60 { // half of what is listed comes without its value, and pages overlap
		t.Errorf("%d lists and %d single reads, want 60 reads at most", s.lists, s.gets)
	}
	s.gets, s.lists, pages = 0, 0, 3
	checkBatch(t, l, names)
	if s.lists != 3 || s.gets < 900 {
		t.Errorf("%d lists and %d single reads after 3 pages", s.lists, s.gets)
	}
	s.gets, s.lists = 0, 0
	if checkBatch(t, l, names[:9]); s.lists > 3 || s.gets > 9 {
		t.Errorf("%d lists and %d single reads for 9 names", s.lists, s.gets)
	}
	s.gets, pages = 0, 0
	if checkBatch(t, l, names); s.gets != 1000 {
		t.Errorf("%d single reads without a page, want 1000", s.gets)
	}
	fault := errors.New("lists fail")
	s.list = func(string) ([]cas.Item, string, error) { return nil, "", fault }
	if _, err := cas.GetByList(t.Context(), s, []string{"a", "b"}, 1); !errors.Is(err, fault) {
		t.Errorf("%v", err)
	}
}
