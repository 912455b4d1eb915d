package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// envPlugin makes a process of this test a credential plug-in. It is the folder with what the plug-in prints.
const envPlugin = "HOLDFAST_TEST_KUBERNETES_PLUGIN"

// plugin is the process of a credential plug-in. It notes that it ran.
func plugin(folder string) (code int) {
	runs, err := os.OpenFile(filepath.Join(folder, "runs"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = runs.WriteString("x")
		err = errors.Join(err, runs.Close())
	}
	text, err2 := os.ReadFile(filepath.Join(folder, "prints"))
	for err2 == nil && len(text) == 0 { // it hangs
		time.Sleep(10 * time.Millisecond)
		text, err2 = os.ReadFile(filepath.Join(folder, "prints"))
	}
	if err = errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	fmt.Println(string(text))
	return 0
}

// withPlugin returns a URL whose kubeconfig has a credential plug-in: this program, which prints what prints was last called with, and
// hangs while that is nothing. runs is how often it has run.
func withPlugin(t *testing.T, server *kubernetestest.Server) (rawURL string, prints func(text string), runs func() int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, folder := server.Kubeconfig(t, server.Host()), t.TempDir()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	login := fmt.Sprintf(`{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": %s, "interactiveMode": "IfAvailable",
		"env": [{"name": %q, "value": %s}]}}`, quoted(self), envPlugin, quoted(folder))
	replaced := strings.Replace(string(text), `{"token": "`+kubernetestest.Token+`"}`, login, 1)
	if err := os.WriteFile(file, []byte(replaced), 0o600); err != nil {
		t.Fatal(err)
	}
	prints = func(text string) {
		if err := os.WriteFile(filepath.Join(folder, "prints"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs = func() int {
		noted, err := os.ReadFile(filepath.Join(folder, "runs"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(noted)
	}
	return "kubernetes://" + kubernetestest.Namespace + "?kubeconfig=" + filepath.ToSlash(file), prints, runs
}

// credential is what a plug-in prints for a token.
func credential(token string) string {
	return fmt.Sprintf(`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": %q}}`, token)
}

// The token of a credential plug-in is used until the API server refuses it. Then the plug-in is asked once more, and its new token is used
// for the same call.
func TestPlugin(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	rawURL, prints, runs := withPlugin(t, server)
	prints(credential(kubernetestest.Token))
	l := open(t, rawURL) // races would be counted as requests of the calls
	lease := acquire(t, l, "n", "a", 30*time.Second)
	if n := runs(); n != 1 {
		t.Errorf("the plug-in ran %d times for one token", n)
	}
	server.SetToken("another-secret")
	prints(credential("another-secret"))
	lease, err := l.Renew(t.Context(), lease)
	if n := runs(); err != nil || n != 2 {
		t.Fatalf("after the token was replaced: %v, and the plug-in ran %d times", err, n)
	}
	server.SetToken("a-third-secret")
	before := server.Requests("get")
	_, err = l.Inspect(t.Context(), "n")
	if !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), "secret") || server.Requests("get") != before+2 {
		t.Errorf("with an old token: %v after %d requests", err, server.Requests("get")-before)
	}
	prints(credential("a-third-secret"))
	if err := l.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// A plug-in that fails is named, and what it prints is not shown. Once it works again, so does the Locker.
func TestFailingPlugin(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	rawURL, prints, _ := withPlugin(t, server)
	l := open(t, rawURL)
	inspect := func(want string) {
		t.Helper()
		_, err := l.Inspect(t.Context(), "n")
		if err == nil || driver.OutcomeKnown(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	inspect("failed with exit code 3")
	for _, text := range []string{kubernetestest.Token, "token: " + kubernetestest.Token, "{" + kubernetestest.Token,
		"[" + kubernetestest.Token + "]", credential("")} {
		prints(text)
		inspect("getting credentials")
	}
	prints(credential(kubernetestest.Token))
	if _, err := l.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}

// What looks like a pod, but has no token, is named: many pods are not given one.
func TestNoServiceAccount(t *testing.T) {
	if _, err := os.Stat(serviceAccount); err == nil {
		t.Skip("this test runs in a pod with a service account")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "absent"))
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	for host, want := range map[string]string{"": "there is no kubeconfig, and this is no pod", "10.0.0.1": "automountServiceAccountToken"} {
		t.Setenv("KUBERNETES_SERVICE_HOST", host)
		if _, err := Open(t.Context(), "kubernetes:"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the host %q: %v, want %q", host, err, want)
		}
	}
}

// A plug-in that hangs holds no call up for longer than its context, and is named, also when it is asked for another token. Once it has
// ended, the Locker works. While the API server is silent, the plug-in is not blamed.
func TestHangingPlugin(t *testing.T) {
	t.Parallel()
	server := kubernetestest.Start(t)
	rawURL, prints, runs := withPlugin(t, server)
	prints("")
	l := open(t, rawURL)
	hangs := func(what string, blamed bool, limit time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := l.Inspect(ctx, "n")
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "credential plug-in") != blamed {
			t.Errorf("%s: got %v", what, err)
		}
	}
	hangs("the plug-in", true, 100*time.Millisecond)
	prints(credential(kubernetestest.Token))
	if _, err := l.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	resume := server.Stall("n")
	hangs("the server", false, 2*time.Second)
	resume()
	server.SetToken("another-secret")
	prints("")
	before := runs()
	hangs("the plug-in, after a token was refused", true, 3*time.Second)
	if runs() == before {
		t.Error("the plug-in was not asked for another token")
	}
	prints(credential("another-secret"))
	if _, err := l.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}

// While as many requests hang as may be under way, no other one waits for the plug-in beyond its context.
func TestManyRequestsHang(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	var hanging atomic.Int32
	config := configFor("http://127.0.0.1:1")
	config.ExecProvider = &clientcmdapi.ExecConfig{Command: "absent", APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	c := httpstore.New(bounded(&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		hanging.Add(1)
		<-hang
		return nil, errors.New("late")
	})}, config), maxAnswer)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ask := func() {
		_, err := c.Send(ctx, httpstore.Request{Method: http.MethodGet, URL: "http://127.0.0.1:1"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "credential plug-in") {
			t.Errorf("got %v", err)
		}
	}
	var asking sync.WaitGroup
	for range 2 * maxRequests {
		asking.Go(ask)
	}
	asking.Wait()
	if n := hanging.Load(); n > maxRequests {
		t.Errorf("%d requests hang", n)
	}
	close(hang)
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
