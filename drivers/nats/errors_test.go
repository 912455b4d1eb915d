package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// JetStream's refusals of writes in an account that is full store nothing: a call says so after one write, and what helps.
func TestFullAccount(t *testing.T) {
	t.Parallel()
	for _, code := range []int{10002, 10047} {
		f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
			if strings.HasPrefix(m.subject, "$KV.") {
				c.say(m.reply, fmt.Sprintf(`{"stream":"KV_b","seq":0,"error":{"code":400,"err_code":%d,"description":"exceeded"}}`, code))
			} else if m.reply != "" {
				c.empty(m)
			}
		})
		l := openFake(t, f, "")
		_, err := l.TryAcquire(t.Context(), request("n", "a"))
		wantDenied(t, "an acquisition", err, true, "raise the limits of the account")
		writes := 0
		for _, subject := range f.subjects() {
			if strings.HasPrefix(subject, "$KV.") {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("%d: %d writes", code, writes)
		}
	}
}

// A cluster with fewer servers than the bucket has replicas: the error names the parameter. It may pass, when more servers have started.
func TestTooFewServers(t *testing.T) {
	t.Parallel()
	f := startFake(t, greeting, func(c *fakeConn, m fakeMessage) {
		switch {
		case strings.HasPrefix(m.subject, "$JS.API.STREAM.CREATE."):
			c.say(m.reply, `{"error":{"code":400,"err_code":10005,"description":"no suitable peers for placement"}}`)
		case m.reply != "":
			c.say(m.reply, `{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`)
		}
	})
	_, err := Open(t.Context(), f.url())
	if err == nil || errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "set the URL parameter replicas") {
		t.Error(err)
	}
}
