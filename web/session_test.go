package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/web"
)

// forgetful is a Locker of a backend that may forget grants.
type forgetful struct{ driver.Locker }

func (f forgetful) Info() driver.Info {
	info := f.Locker.Info()
	info.Failover = driver.GrantsMayBeForgotten
	return info
}

// The page says what the backend does not promise.
func TestCaveats(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]driver.Locker{"": memory.New(), "may be forgotten": forgetful{memory.New()}} {
		client, err := holdfast.New(l)
		if err != nil {
			t.Fatal(err)
		}
		h, err := web.New(client, web.Options{})
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/session", nil))
		if got := answer.Body.String(); strings.Contains(got, "caveats") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s, want %q", got, want)
		}
		h.Close()
		if err := client.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
