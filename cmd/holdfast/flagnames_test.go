package main

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestErrorsNameFlags(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{driver.Invalid("Grace", "40s", "less than the TTL of 30s"), "holdfast: --grace 40s is invalid: must be less than the TTL of 30s"},
		{driver.Invalid("Owner", `"x"`, "short"), `holdfast: --owner "x" is invalid: must be short`},
		{driver.Invalid("URL", "without a database", "with one"), "holdfast: the backend's URL without a database is invalid: must be with one"},
		{driver.Invalid("URL parameter retention", "1m", "more"), "holdfast: the backend's URL parameter retention 1m is invalid: must be more"},
		{driver.Errorf("lock: %w", driver.Invalid("TTL", "1s", "more")), "holdfast: lock: --ttl 1s is invalid: must be more"},
		{errors.New("Grace"), "Grace"},
	} {
		if got := withFlagNames(tc.err); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}
