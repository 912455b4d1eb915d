package httpserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A name counts as a whole: neither a longer one that ends in it nor one that begins with it is the same.
func TestOwnHost(t *testing.T) {
	t.Parallel()
	guarded := RequireOwnHost([]string{"locks.example.com"}, http.HandlerFunc(Healthy))
	for host, want := range map[string]int{
		"locks.example.com": http.StatusOK, "LOCKS.example.com:8080": http.StatusOK, "localhost": http.StatusOK, "127.0.0.1:7070": http.StatusOK,
		"[::1]:7070":             http.StatusOK,
		"evil-locks.example.com": http.StatusForbidden, "evil.locks.example.com": http.StatusForbidden,
		"locks.example.com.evil.net": http.StatusForbidden,
		"evillocalhost":              http.StatusForbidden, "example.com": http.StatusForbidden, "": http.StatusForbidden,
		"127.0.0.1.evil.net": http.StatusForbidden,
	} {
		request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		request.Host = host
		answer := httptest.NewRecorder()
		guarded.ServeHTTP(answer, request)
		if answer.Code != want {
			t.Errorf("host %q: status %d, want %d", host, answer.Code, want)
		}
	}
}
