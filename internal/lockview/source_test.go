package lockview_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/internal/faulty"
	"github.com/holdfast-go/holdfast/internal/lockview"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// open makes a client of a backend to whose listings faults happen.
func open(t *testing.T, fault func(n int) faulty.Fault) (*holdfast.Client, *faulty.Locker) {
	t.Helper()
	locker := faulty.New(memory.NewStore().Locker(), func(op string, n int, _ driver.Lease) faulty.Fault {
		if op == faulty.OpList {
			return fault(n)
		}
		return faulty.Fault{}
	})
	client, err := holdfast.New(locker)
	if err != nil {
		t.Fatal(err)
	}
	locktest.ShutDownAtEnd(t, client)
	return client, locker
}

// A listing is repeated after its interval, and later if it takes long. Nobody lists without a reader.
func TestListingKeepsItsInterval(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		most  int // listings in a minute
		least int
	}{{"quick", 0, 31, 30}, {"slow", 2 * time.Second, 7, 6}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, locker := open(t, func(int) faulty.Fault { return faulty.Fault{Delay: c.takes} })
				source := lockview.NewSource(client, "", 2*time.Second)
				defer source.Close()
				time.Sleep(time.Minute)
				if n := locker.Count(faulty.OpList); n != 0 {
					t.Errorf("%d listings without a reader", n)
				}
				leave := source.Enter()
				time.Sleep(time.Minute)
				if n := locker.Count(faulty.OpList); n < c.least || n > c.most {
					t.Errorf("%d listings in a minute, want %d to %d", n, c.least, c.most)
				}
				leave()
				time.Sleep(time.Minute)
				before := locker.Count(faulty.OpList)
				time.Sleep(time.Minute)
				if n := locker.Count(faulty.OpList) - before; n != 0 {
					t.Errorf("%d listings long after the last reader has left", n)
				}
			})
		})
	}
}

// A listing that hangs until its time limit is soon repeated, so that readers see at once that the
// backend answers again.
func TestListingRecoversSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := open(t, func(n int) faulty.Fault { return faulty.Fault{Hang: n <= 2} })
		source := lockview.NewSource(client, "", 2*time.Second)
		defer source.Close()
		defer source.Enter()()
		began := time.Now()
		for number := range 3 {
			s, err := source.After(t.Context(), number)
			if err != nil {
				t.Fatal(err)
			}
			if failed := s.Err != nil; failed != (number < 2) {
				t.Errorf("listing %d: error %v", number+1, s.Err)
			}
		}
		if took := time.Since(began); took > 70*time.Second+time.Millisecond { // two time limits, each with a wait of 5 s
			t.Errorf("recovered after %v", took)
		}
	})
}

// A failed listing leaves the records of the last one that succeeded, with their time.
func TestFailedListingKeepsTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no answer")
		client, _ := open(t, func(n int) faulty.Fault {
			if n == 2 {
				return faulty.Fault{Refuse: failure}
			}
			return faulty.Fault{}
		})
		if _, err := client.Lock(t.Context(), "job"); err != nil {
			t.Fatal(err)
		}
		source := lockview.NewSource(client, "", 2*time.Second)
		defer source.Close()
		defer source.Enter()()
		var last *lockview.Snapshot
		for number, want := range []error{nil, failure, nil} {
			s, err := source.After(t.Context(), number)
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(s.Err, want) || len(s.Records) != 1 {
				t.Errorf("listing %d: error %v, %d records, want %v, 1", number, s.Err, len(s.Records), want)
			}
			if want != nil && !s.At.Equal(last.At) {
				t.Errorf("a failed listing is said to be of %v, the last one was at %v", s.At, last.At)
			}
			if left := time.Until(s.Overdue); left < 4*time.Second || left > 10*time.Second {
				t.Errorf("the next listing counts as overdue in %v", left)
			}
			last = s
		}
	})
}
