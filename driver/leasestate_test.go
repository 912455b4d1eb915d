package driver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Nothing prints the content of a lease's State, which may be the lock's data.
func TestLeaseStateIsHidden(t *testing.T) {
	const secret = "version-7-and-the-data"
	state := driver.NewLeaseState(secret)
	if state.Content() != secret || state.IsZero() || (driver.LeaseState{}).Content() != "" || !driver.NewLeaseState("").IsZero() {
		t.Errorf("%q", state.Content())
	}
	lease := driver.Lease{Name: "n", Owner: "me", State: state}
	type private struct{ state driver.LeaseState }
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	for _, v := range []any{state, &state, lease, &lease, []driver.Lease{lease}, private{state}, struct{ S driver.LeaseState }{state},
		map[string]driver.LeaseState{"a": state}} {
		line, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		logger.Info("x", "v", v)
		for _, text := range []string{string(line), fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v), fmt.Sprintf("%s %q %x", v, v, v),
			log.String()} {
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("%T: %s", v, text)
			}
		}
	}
	if line, _ := json.Marshal(lease); strings.Contains(string(line), "State") {
		t.Errorf("%s", line)
	}
}
