package kubernetes

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// envPod makes a process of this test that in the pod.
const envPod = "HOLDFAST_TEST_KUBERNETES_POD"

// In a pod the API server, its certificate, the credential and the namespace are those of the service account. client-go looks for them in
// a folder of the system: so the pod is a process with mounts of its own, and nothing of the system is written.
func TestServiceAccount(t *testing.T) {
	if os.Getenv(envPod) != "" {
		inPod(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestServiceAccount$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), envPod+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit): // the process did not start
		t.Skipf("a process may not have mounts of its own here: %v", err)
	case err == nil && strings.Contains(string(out), "--- SKIP"):
		t.Skipf("a process may not mount a folder here: %s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS"):
		t.Errorf("in the pod: %v\n%s", err, out)
	}
}

func inPod(t *testing.T) {
	t.Helper()
	if err := syscall.Mount("tmpfs", "/var/run", "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	if err := os.MkdirAll(serviceAccount, 0o700); err != nil {
		t.Fatal(err)
	}
	server := kubernetestest.Start(t)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(serviceAccount, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", string(server.Certificate()))
	write("namespace", kubernetestest.Namespace+"\n")
	host, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"KUBECONFIG": filepath.Join(t.TempDir(), "absent"), "KUBERNETES_SERVICE_HOST": host,
		"KUBERNETES_SERVICE_PORT": port, "POD_NAMESPACE": ""} {
		t.Setenv(name, value)
	}
	if _, err := Open(t.Context(), "kubernetes:"); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("without a token: %v", err)
	}
	write("token", kubernetestest.Token)
	t.Run("other cluster", otherCluster)
	l := openRacing(t, "kubernetes:")
	if l.store.namespace != kubernetestest.Namespace {
		t.Errorf("the namespace is %q", l.store.namespace)
	}
	lease := acquire(t, l, "n", "a", 30*time.Second)
	server.SetToken("another-secret")
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrDenied) || strings.Contains(err.Error(), "secret") {
		t.Errorf("with an old token: %v", err)
	}
	write("token", "another-secret")
	if _, err := l.Renew(t.Context(), lease); err != nil {
		t.Errorf("after the token was replaced: %v", err)
	}
	if _, err := Open(t.Context(), "kubernetes://absent"); err == nil || !strings.Contains(err.Error(), "namespace absent does not exist") {
		t.Errorf("another namespace: %v", err)
	}
	write("ca.crt", "")
	if _, err := Open(t.Context(), "kubernetes:"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the certificate of the API server: %v", err)
	}
}

// otherCluster checks, in a pod, that a URL with a file or a context never means the pod's own cluster or namespace: another program with
// the same URL, that runs elsewhere, would hold the same lock.
func otherCluster(t *testing.T) {
	const cluster = `{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1"}}],
		"users": [{"name": "u", "user": {"token": "secret"}}], "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}},
		{"name": "team", "context": {"cluster": "c", "user": "u", "namespace": "team"}}, {"name": "none", "context": {"user": "u"}}]`
	name := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ text, context string }{{"", ""}, {"", "x"}, {"{}", ""}, {cluster + "}", ""}, {cluster + "}", "absent"},
		{cluster + `, "current-context": "none"}`, ""}, {cluster + `, "current-context": "absent"}`, ""},
		{cluster + `, "current-context": "x"`, ""}} {
		write(c.text)
		p := place{namespace: kubernetestest.Namespace, kubeconfig: name, context: c.context}
		if _, namespace, err := p.load(); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s with context %q: namespace %q, %v", c.text, c.context, namespace, err)
		}
	}
	write("")
	rawURL := "kubernetes://" + kubernetestest.Namespace + "?kubeconfig=" + name
	if _, err := Open(t.Context(), rawURL); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("an empty kubeconfig: %v", err)
	}
	write(cluster + `, "current-context": "x"}`)
	t.Setenv("KUBECONFIG", name)
	if _, _, err := (place{namespace: "ours", context: "none"}).load(); err == nil || !strings.Contains(err.Error(), "has no cluster") {
		t.Errorf("a context without a cluster: %v", err)
	}
	for p, want := range map[place]string{{kubeconfig: name}: "default", {context: "x"}: "default", {context: "team"}: "team",
		{kubeconfig: name, context: "team"}: "team", {kubeconfig: name, namespace: "ours"}: "ours"} {
		config, namespace, err := p.load()
		if err != nil || namespace != want || config.Host != "https://192.0.2.1" {
			t.Errorf("%+v: namespace %q, want %q; %v", p, namespace, want, err)
		}
	}
}
