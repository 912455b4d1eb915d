package driverutil_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// A driver's own parameters are decoded, the others stay as they are, and a value that is none names its parameter.
func TestTakeParams(t *testing.T) {
	t.Parallel()
	names := []string{"timeout", driver.ParamHistory}
	taken, rest, err := driverutil.TakeParams("a=%31&timeout=1%30s&&history=3&timeouts=x", names)
	want := []driverutil.Param{{Name: "timeout", Value: "10s"}, {Name: driver.ParamHistory, Value: "3"}}
	if err != nil || rest != "a=%31&timeouts=x" || !slices.Equal(taken, want) {
		t.Fatalf("got %v and %q, %v", taken, rest, err)
	}
	if d, err := taken[0].Duration(); d != 10*time.Second || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
	if n, err := taken[1].History(); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	wrong := func(field string, err error) {
		t.Helper()
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "URL parameter "+field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
	for _, query := range []string{"timeout", "timeout=", "timeout=%zz", "timeout=%00"} {
		_, _, err := driverutil.TakeParams(query, names)
		wrong("timeout", err)
	}
	_, err = driverutil.Param{Name: "timeout", Value: "soon"}.Duration()
	wrong("timeout", err)
	_, err = driverutil.Param{Name: driver.ParamHistory, Value: "33"}.History()
	wrong(driver.ParamHistory, err)
}
