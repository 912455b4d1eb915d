package driverutil_test

import (
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// Each method reports its level, with all that it was given.
func TestReport(t *testing.T) {
	t.Parallel()
	var got []driver.Finding
	report := driverutil.Report(func(f driver.Finding) { got = append(got, f) })
	report.OK("a", "%d %%", 1)
	report.Unchecked("b", "grant", "%s", "two")
	report.Doubtful("c", "look", "three")
	report.Wrong("d", "run:", "rm", "four")
	report.Of("Store 1").OK("e", "five")
	want := []driver.Finding{
		{Subject: "a", Detail: "1 %"},
		{Subject: "b", Level: driver.LevelUnchecked, Detail: "two", Remedy: "grant"},
		{Subject: "c", Level: driver.LevelDoubtful, Detail: "three", Remedy: "look"},
		{Subject: "d", Level: driver.LevelWrong, Detail: "four", Remedy: "run:", Command: "rm"},
		{Subject: "e", Detail: "five", Server: "Store 1"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
