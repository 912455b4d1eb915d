package etcd

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/test/etcdtest"
)

// An answer that is not of gRPC, or not whole, says nothing of what was done, and nothing of it is shown.
func TestAnswerOfAProxy(t *testing.T) {
	t.Parallel()
	f := startFake(t)
	s := storeAt(t, urlOf(f.addr()))
	frame := string(frameOf(done(7)))
	long := string(binary.BigEndian.AppendUint32([]byte{0}, maxAnswer+1))
	withStatus := func(header, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Grpc-Status", header)
			html(200, contentType, text)(w)
		}
	}
	for what, answer := range map[string]reply{
		"bad gateway":         {raw: html(502, "text/html", "<html>secret</html>")},
		"not found":           {raw: html(404, "text/plain", "secret page not found")},
		"a message and 503":   {raw: html(503, contentType, "secret etcdserver: no leader, permission denied")},
		"a redirect":          {raw: html(302, "text/html", "secret")},
		"html":                {raw: html(200, "text/html", "<html>secret</html>")},
		"JSON":                {raw: html(200, "application/json", `{"secret": true}`)},
		"no status":           {raw: html(200, contentType, frame)},
		"an unknown status":   {raw: withStatus("secret", frame)},
		"no message":          {raw: withStatus("0", "")},
		"two messages":        {raw: withStatus("0", frame+frame)},
		"half a message":      {raw: withStatus("0", frame[:len(frame)-1])},
		"half a frame":        {raw: withStatus("0", frame[:3])},
		"a compressed one":    {raw: withStatus("0", "\x01"+frame[1:])},
		"a long one":          {raw: withStatus("0", long)},
		"no header":           {message: appendFlag(nil, 2, true)},
		"no protobuf":         {message: []byte("secret")},
		"an end in its midst": {raw: func(w http.ResponseWriter) { html(200, contentType, frame)(w); panic(http.ErrAbortHandler) }},
	} {
		f.set(methodRange, reply{})
		if _, err := s.Get(t.Context(), "k"); err != nil { // the member is known
			t.Fatal(err)
		}
		f.set(methodTxn, answer)
		f.set(methodRange, answer)
		_, putErr := s.Put(t.Context(), "k", []byte("v"), "")
		_, getErr := s.Get(t.Context(), "k")
		for _, err := range []error{putErr, getErr} {
			if err == nil || driver.OutcomeKnown(err) || errors.Is(err, cas.ErrConflict) || strings.Contains(err.Error(), "secret") ||
				!strings.Contains(err.Error(), "not that of etcd") && what != "an end in its midst" {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// The error shows that a server does not speak gRPC, or not even HTTP/2.
func TestNotGRPC(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { html(200, "text/html", "<html>secret</html>")(w) })
	start := func(begin func(*httptest.Server)) (s *httptest.Server, address string) {
		s = httptest.NewUnstartedServer(page)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		begin(s)
		t.Cleanup(s.Close)
		return s, s.Listener.Addr().String()
	}
	_, plain := start((*httptest.Server).Start)
	server, secured := start((*httptest.Server).StartTLS)
	caFile := filepath.ToSlash(filepath.Join(t.TempDir(), "ca.pem"))
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	without, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Server{Handler: page, ReadHeaderTimeout: time.Minute}
	go func() { _ = old.Serve(without) }()
	t.Cleanup(func() { _ = old.Close() })
	for what, c := range map[string]struct{ url, want string }{
		"TLS without protocols":    {"etcds://" + without.Addr().String() + "?caFile=" + caFile, "offers no HTTP/2"},
		"HTTP/1.1":                 {urlOf(plain), "another server"},
		"TLS, without it":          {urlOf(secured), "the scheme is etcds"},
		"HTTP/1.1 over TLS":        {"etcds://" + secured + "?caFile=" + caFile, "application protocol"},
		"without TLS, with it":     {"etcds://" + plain, "the scheme is etcd"},
		"a text":                   {urlOf(says(t, "220 secret\r\n")), "another server"},
		"the end of a connection":  {urlOf(says(t, "")), "another server"},
		"without TLS, with a text": {"etcds://" + says(t, "220 secret\r\n"), "the scheme is etcd"},
	} {
		l := openAt(t, c.url, onlyReads)
		_, putErr := l.store.Put(t.Context(), "k", []byte("v"), "")
		_, getErr := l.store.Get(t.Context(), "k")
		for _, err := range []error{putErr, getErr} {
			if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want %q", what, err, c.want)
			}
		}
	}
}

// says starts a server that sends a text to each client, and ends the connection when the client has said something.
func says(t *testing.T, text string) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(client, text)
			_, _ = client.Read(make([]byte, 1<<10))
			_ = client.Close()
		}
	}()
	return l.Addr().String()
}

// A member without the JSON gateway serves locks, and wakes waiters.
func TestWithoutGateway(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, "--enable-grpc-gateway=false")
	if _, err := s.Ask(t.Context(), "", "/v3/kv/range", map[string]any{"key": []byte("k")}); err == nil {
		t.Fatal("the member has a gateway")
	}
	l := openAt(t, s.URL())
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		lease, err = l.Renew(t.Context(), lease)
	}
	if err != nil {
		t.Fatal(err)
	}
	reports := follow(t, l.store, "n")
	next(t, reports)
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if v := next(t, reports); v.Version == "" {
		t.Errorf("the release is reported as %+v", v)
	}
	wantFinding(t, examine(t, s.URL()), subjectCluster, driver.LevelOK, "1 voting")
}
