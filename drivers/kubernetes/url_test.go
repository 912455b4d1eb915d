package kubernetes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// Each mistake has an error that names the field, and none shows what may be a secret.
func TestURLErrors(t *testing.T) {
	const secret = "S3cr3t"
	for rawURL, want := range map[string]string{
		"kubernetes://ns?contxt=a":                           "one of context, history, kubeconfig, prefix",
		"kubernetes://ns?" + secret + "%2F=1":                "not shown",
		"kubernetes://user:" + secret + "@ns":                "more than a namespace",
		"kubernetes://ns:6443":                               "more than a namespace",
		"kubernetes://ns/locks":                              "more than a namespace",
		"kubernetes:ns":                                      "more than a namespace",
		"kubernetes://a.b":                                   "small letters, digits and dashes",
		"kubernetes://-a":                                    "small letters, digits and dashes",
		"kubernetes://A":                                     "small letters, digits and dashes",
		"kubernetes://a_b":                                   "small letters, digits and dashes",
		"kubernetes://" + strings.Repeat("a", 64):            "1 to 63",
		"kubernetes://ns?context=":                           "context without one value",
		"kubernetes://ns?context=a&context=b":                "context without one value",
		"kubernetes://ns?context=a%0A":                       "URL parameter context",
		"kubernetes://ns?kubeconfig=~/c":                     "no shell expands",
		"kubernetes://ns?kubeconfig=$HOME/c":                 "no shell expands",
		"kubernetes://ns?prefix=A":                           "URL parameter prefix",
		"kubernetes://ns?prefix=-a":                          "URL parameter prefix",
		"kubernetes://ns?prefix=a-.":                         "URL parameter prefix",
		"kubernetes://ns?prefix=" + strings.Repeat("a", 101): "at most 100",
		"kubernetes://ns?history=33":                         "from 0 to 32",
		"kubernetes://ns?history=all":                        "history",
		"kubernetes://ns#x":                                  "with a #",
		"kubernetes://ns ":                                   "white space",
		"kubernetes://ns?prefix=%zz":                         "properly encoded",
		"kubernetes://[":                                     "cannot be parsed",
	} {
		_, err := Open(t.Context(), rawURL)
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
}

// A kubeconfig that is missing, damaged or has no such context is named, and nothing of it is shown.
func TestKubeconfigErrors(t *testing.T) {
	server := kubernetestest.Start(t)
	whole := server.Kubeconfig(t, server.Host())
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.ToSlash(file)
	}
	cut := write("cut", string(text[:len(text)-30]))
	noUser := write("user", strings.Replace(string(text), `"user": "test"`, `"user": "absent"`, 1))
	badCert := write("cert", strings.Replace(string(text), `{"token"`,
		`{"client-certificate-data": "QUJD", "client-key-data": "QUJD", "token"`, 1))
	withUser := write("login", strings.Replace(string(text), "https://", "https://me:"+kubernetestest.Token+"@", 1))
	for rawURL, want := range map[string]string{
		"kubernetes://locks?kubeconfig=" + dir + "/absent":               "no such file",
		"kubernetes://locks?kubeconfig=" + cut:                           "cannot be used",
		"kubernetes://locks?kubeconfig=" + noUser:                        "does not accept the credential",
		"kubernetes://locks?kubeconfig=" + badCert:                       "valid",
		"kubernetes://locks?kubeconfig=" + withUser:                      "a URL without a user",
		"kubernetes://locks?context=other&kubeconfig=" + whole:           `no usable context "other"`,
		"kubernetes://locks?kubeconfig=" + filepath.ToSlash(dir):         "cannot be used",
		"kubernetes:?kubeconfig=" + write("empty", "apiVersion: v1\n"):   "no current context",
		"kubernetes://locks?kubeconfig=" + write("junk", "a: [\n- b: {"): "cannot be used",
	} {
		_, err := Open(t.Context(), rawURL)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), kubernetestest.Token) ||
			strings.Contains(err.Error(), "QUJD") {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
}

// Without a namespace in the URL it is that of the context, and without a file it is that of KUBECONFIG.
func TestNamespaceOfTheContext(t *testing.T) {
	server := kubernetestest.Start(t)
	file := server.Kubeconfig(t, server.Host())
	t.Setenv("KUBECONFIG", file)
	for _, rawURL := range []string{"kubernetes:", "kubernetes://", "KUBERNETES://locks", "kubernetes:?context=test",
		"kubernetes:?kubeconfig=" + file} {
		l, err := Open(t.Context(), rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if l.store.namespace != kubernetestest.Namespace {
			t.Errorf("%s: the namespace is %q", rawURL, l.store.namespace)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for rest, want := range map[string]string{
		"//ns": "//ns", "//ns?prefix=a-&history=3": "//ns prefix a-", "?context=prod&kubeconfig=/k": " context prod kubeconfig /k",
	} {
		if d, _ := driver.Describe("kubernetes:"); d.Place(rest) != want {
			t.Errorf("the place of %q is %q", rest, d.Place(rest))
		}
	}
}

// A program's own configuration is used, and stays as it is.
func TestNew(t *testing.T) {
	server := kubernetestest.Start(t)
	config := configFor(server.Host())
	config.Timeout, config.QPS = time.Nanosecond, 0.001
	with := *config
	with.BearerToken, with.ExecProvider = "", &clientcmdapi.ExecConfig{Command: "/absent/plugin",
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode}
	if _, err := New(t.Context(), &with, kubernetestest.Namespace); err == nil || !strings.Contains(err.Error(), "/absent/plugin") {
		t.Errorf("a plug-in that is missing: %v", err)
	}
	if with.ExecProvider.StdinUnavailable {
		t.Error("the program's plug-in was changed")
	}
	before := config.String()
	l, err := New(t.Context(), config, kubernetestest.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if config.String() != before {
		t.Errorf("the configuration was changed: %s", config)
	}
	for _, bad := range []func() (*Locker, error){
		func() (*Locker, error) { return New(t.Context(), nil, "locks") },
		func() (*Locker, error) { return New(t.Context(), config, "") },
		func() (*Locker, error) { return New(t.Context(), config, "locks", nil) },
		func() (*Locker, error) { return New(t.Context(), config, "locks", WithHistory(-1)) },
		func() (*Locker, error) { return New(t.Context(), config, "locks", WithPrefix("A")) },
	} {
		if _, err := bad(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}
