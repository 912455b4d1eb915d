package awstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Each kind of request has the answer that the package comment says, and only those that may be made are done.
func TestServer(t *testing.T) {
	t.Parallel()
	done := 0
	s := Start(t, Service{
		Name: "s",
		Read: func(r *http.Request, _ []byte) Call {
			return Call{Request: Request{"Put", r.URL.Path}, About: func(key string) bool { return strings.HasPrefix(key, r.URL.Path) },
				Do: func(w http.ResponseWriter) { done++; _, _ = fmt.Fprint(w, done) }}
		},
		Fail:     func(w http.ResponseWriter, status int, code, message string) { http.Error(w, code+" "+message, status) },
		WrongKey: Error{401, "key", ""}, WrongRegion: Error{402, "region", ""}, WrongBody: Error{403, "body", ""},
		Denied: Error{405, "denied", ""},
	})
	s.SetClock(func() time.Time { return time.Unix(1, 0) })
	send := func(signature, body string) string {
		t.Helper()
		sum := sha256.Sum256([]byte("b"))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.Endpoint()+"/k", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", signature)
		r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return "no answer"
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.Header.Get("Date") != "Thu, 01 Jan 1970 00:00:01 GMT" {
			t.Errorf("%v, %v", resp.Header, err)
		}
		return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(text)))
	}
	const good = "Credential=" + KeyID + "/1/" + Region + "/s/aws4_request"
	check := func(what, got, want string, times int) {
		t.Helper()
		s.Locked(func() {
			if got != want || done != times {
				t.Errorf("%s: %q, want %q; done %d times, want %d", what, got, want, done, times)
			}
			done = 0
		})
	}
	check("signed", send(good, "b"), "200 1", 1)
	const other, region = "Credential=A/1/" + Region + "/s/aws4_request", "Credential=" + KeyID + "/1/eu-test-2/s/aws4_request"
	check("another key", send(other, "b"), "401 key "+other, 0)
	check("another region", send(region, "b"), "402 region "+region, 0)
	check("another body", send(good, "c"), "403 body "+good, 0)
	allow := s.Deny("Put")
	check("denied", send(good, "b"), "405 denied Put", 0)
	allow()
	check("allowed again", send(good, "b"), "200 1", 1)
	for want, fault := range map[string]Fault{
		"503 slow down": {Status: 503, Code: "slow", Message: "down"}, "429 page": {Status: 429, Message: "page"},
	} {
		s.SetFaults(func(Request) Fault { return fault })
		check("fault", send(good, "b"), want, 0)
	}
	s.SetFaults(func(Request) Fault { return Fault{Twice: true} })
	check("twice", send(good, "b"), "200 2", 2)
	s.SetFaults(func(Request) Fault { return Fault{Unanswered: true} })
	check("unanswered", send(good, "b"), "no answer", 1)
	s.SetFaults(nil)
	resume := s.Stall("/key") // the request is about what begins with its key
	answer := make(chan string, 1)
	go func() { answer <- send(good, "b") }()
	time.Sleep(50 * time.Millisecond) // it has not been answered then
	if len(answer) > 0 {
		t.Error("a request that is held up was answered")
	}
	resume()
	check("held up", <-answer, "200 1", 1)
	if n := s.Requests("Put"); n < 10 {
		t.Errorf("%d requests are counted", n)
	}
}
