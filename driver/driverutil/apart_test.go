package driverutil_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func TestWithParam(t *testing.T) {
	for given, want := range map[string]string{
		"x://u:p%40@h/db":                 "x://u:p%40@h/db?table=n_1",
		"x://h/db?a=b&table=old&tables=c": "x://h/db?table=n_1&a=b&tables=c",
		"x://h/db?":                       "x://h/db?table=n_1",
	} {
		if got := driverutil.WithParam(given, "table", "n_1"); got != want {
			t.Errorf("%s becomes %s, want %s", given, got, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for given, want := range map[string]string{
		"x:./dir": "x:./dir/n", "x://a/c/?p=q/r": "x://a/c/n?p=q/r", "x:/dir/": "x:/dir/n",
	} {
		if got := driverutil.Below(given, "n"); got != want {
			t.Errorf("%s becomes %s, want %s", given, got, want)
		}
	}
}
