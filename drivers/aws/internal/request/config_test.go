package request

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// Whoever waits for credentials has a limit, but the SDK's request for them goes on. One whose answer stalls must end by itself, since all
// later calls would wait for it.
func TestStalledCredentials(t *testing.T) {
	serverprocess.Long(t, "waits for 10 s")
	ended := make(chan struct{})
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"AccessKeyId":"a",`))
		if asked.Add(1) == 1 {
			_ = http.NewResponseController(w).Flush()
			<-ended
			return
		}
		_, _ = w.Write([]byte(`"SecretAccessKey":"b","Token":"c"}`))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	for name, value := range map[string]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL, "AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "", "AWS_CONFIG_FILE": "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	config, err := Load(t.Context(), "", "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := config.Credentials.Retrieve(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
