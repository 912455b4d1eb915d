package mongo

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// A monitor observes the commands of a Locker that was opened by URL. With the program's own
// client there is no such option.
func TestMonitor(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	var log commandLog
	l, err := Open(bounded(t), mongotest.WithDatabase(mongotest.URI(t), coll.Database().Name()), WithLogger(discard),
		WithMonitor(log.monitor()))
	if err != nil {
		t.Fatal(err)
	}
	defer closeLocker(t, l)
	log.take()
	lease := acquire(t, l, request("n", "id"))
	if err := errors.Join(errOf(l.Renew(bounded(t), lease)), l.Release(bounded(t), lease)); err != nil {
		t.Fatal(err)
	}
	if got, want := commandNames(log.take()), []string{"findAndModify", "update", "update"}; !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
	if _, err := New(bounded(t), coll, WithMonitor(log.monitor())); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("New with a monitor: %v", err)
	}
}
