package kubernetestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// EnvBin is the variable with the folder of the programs kube-apiserver and etcd, of which tests start a real API server.
// tools/kubernetes.sh makes them.
const EnvBin = "HOLDFAST_TEST_KUBERNETES_BIN"

// Programs returns the folder of [EnvBin], and skips the test if there is none.
func Programs(tb testing.TB) string {
	tb.Helper()
	return serverprocess.Given(tb, EnvBin, "tools/kubernetes.sh builds a real API server")
}

// adminToken is the credential of a user who may do everything.
const adminToken = "secret-bearer-of-the-admin"

// Cluster is a real API server on an etcd of one member. The namespace [Namespace] exists, and who has [Token] may do there what
// deploy/kubernetes/locks-role.yaml allows. Its methods are those of [Server], as far as a real one can.
type Cluster struct {
	API, Etcd *serverprocess.Server
	admin     *http.Client
}

// StartCluster starts one for this test alone.
func StartCluster(tb testing.TB) *Cluster {
	tb.Helper()
	c, err := NewCluster(tb.Context(), Programs(tb), tb.TempDir())
	return serverprocess.Owned(tb, c, err)
}

// NewCluster starts one of the programs in a folder, with its data below base.
func NewCluster(ctx context.Context, programs, base string) (*Cluster, error) {
	role, err := os.ReadFile("../../deploy/kubernetes/locks-role.yaml")
	if err != nil {
		return nil, err
	}
	etcd, err := serverprocess.StartOne(ctx, base, serverprocess.Config{
		Name: "etcd", Program: filepath.Join(programs, "etcd"),
		Args: func(port, data string) []string {
			at := "http://127.0.0.1:" + port
			return []string{"--data-dir=" + data, "--listen-client-urls=" + at, "--advertise-client-urls=" + at,
				"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=http://127.0.0.1:1",
				"--initial-cluster=default=http://127.0.0.1:1", "--log-level=warn"}
		},
	})
	if err != nil {
		return nil, err
	}
	c := &Cluster{Etcd: etcd, admin: &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // the test has started it
	c.API, err = serverprocess.StartOne(ctx, base, serverprocess.Config{
		Name: "kube-apiserver", Program: filepath.Join(programs, "kube-apiserver"),
		Args: func(port, data string) []string {
			key := filepath.Join(data, "key.pem")
			return []string{"--etcd-servers=http://" + c.Etcd.Addr(), "--bind-address=" + serverprocess.Host, "--secure-port=" + port,
				"--cert-dir=" + data, "--token-auth-file=" + filepath.Join(data, "tokens.csv"), "--authorization-mode=RBAC",
				"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
				"--service-account-issuer=https://kubernetes.default.svc", "--disable-admission-plugins=ServiceAccount",
				"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"}
		},
		Prepare: func(_ context.Context, _, data string, _ func(string, ...string) error) error {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				return err
			}
			text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
			users := Token + ",locks,1\n" + adminToken + ",admin,0,system:masters\n"
			return errors.Join(os.WriteFile(filepath.Join(data, "key.pem"), text, 0o600),
				os.WriteFile(filepath.Join(data, "tokens.csv"), []byte(users), 0o600))
		},
		Ready: func(ctx context.Context, port string) bool {
			status, _, err := c.ask(ctx, http.MethodGet, "https://127.0.0.1:"+port+"/readyz", "", "")
			return err == nil && status == http.StatusOK
		},
	})
	if err != nil {
		return nil, errors.Join(err, c.Etcd.Remove())
	}
	rules, _, _ := strings.Cut(string(role), "\n---\n") // the binding after it is for a service account
	err = errors.Join(
		c.must(ctx, http.MethodPost, "/api/v1/namespaces", "application/json",
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+Namespace+`"}}`),
		c.must(ctx, http.MethodPost, rbac+"roles", "application/yaml", rules), c.allow(ctx))
	if err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

// Remove ends the servers and removes their data.
func (c *Cluster) Remove() error { return errors.Join(c.API.Remove(), c.Etcd.Remove()) }

// Host is the server's address, with its scheme.
func (c *Cluster) Host() string { return "https://" + c.API.Addr() }

// URL is one for the driver, with a kubeconfig.
func (c *Cluster) URL(tb testing.TB) string {
	tb.Helper()
	return "kubernetes://" + Namespace + "?kubeconfig=" + filepath.ToSlash(kubeconfig(tb, c.Host(), Token))
}

// AdminURL is that for a user who may do everything, such as client-go's electors, which need the verb update.
func (c *Cluster) AdminURL(tb testing.TB) string {
	tb.Helper()
	return "kubernetes://" + Namespace + "?kubeconfig=" + filepath.ToSlash(kubeconfig(tb, c.Host(), adminToken))
}

const (
	rbac  = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + Namespace + "/"
	bound = "holdfast-locks"
)

// ask makes a request as the admin.
func (c *Cluster) ask(ctx context.Context, method, url, contentType, body string) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	got, err := c.admin.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = got.Body.Close() }()
	answer, err = io.ReadAll(got.Body)
	return got.StatusCode, answer, err
}

// must makes a request that has to succeed.
func (c *Cluster) must(ctx context.Context, method, path, contentType, body string) error {
	status, answer, err := c.ask(ctx, method, c.Host()+path, contentType, body)
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	return err
}

// Lease returns a Lease as JSON, or nil.
func (c *Cluster) Lease(name string) []byte {
	status, answer, err := c.ask(context.Background(), http.MethodGet, c.Host()+path+Namespace+"/leases/"+name, "", "")
	if err != nil || status != http.StatusOK {
		return nil
	}
	return answer
}

// Edit changes a Lease by a merge patch, as kubectl does.
func (c *Cluster) Edit(name, patch string) error {
	return c.must(context.Background(), http.MethodPatch, path+Namespace+"/leases/"+name, "application/merge-patch+json", patch)
}

// Delete deletes a Lease, as kubectl does. It reports whether there was one.
func (c *Cluster) Delete(name string) bool {
	return c.must(context.Background(), http.MethodDelete, path+Namespace+"/leases/"+name, "", "") == nil
}

// Deny takes the rights away, and returns when the API server has noticed. allow gives them back.
func (c *Cluster) Deny(ctx context.Context) (allow func(), err error) {
	if err := c.must(ctx, http.MethodDelete, rbac+"rolebindings/"+bound, "", ""); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	return func() {
		if err := c.allow(ctx); err != nil {
			panic(err) // no later clause can pass
		}
	}, c.await(ctx, false)
}

// allow gives the rights, and returns when the API server has noticed.
func (c *Cluster) allow(ctx context.Context) error {
	if err := c.must(ctx, http.MethodPost, rbac+"rolebindings", "application/json", `{"apiVersion": "rbac.authorization.k8s.io/v1",
		"kind": "RoleBinding", "metadata": {"name": "`+bound+`"}, "subjects": [{"kind": "User", "name": "locks"}],
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "`+bound+`"}}`); err != nil {
		return err
	}
	return c.await(ctx, true)
}

// await waits until the user of the tests may patch Leases, or may not.
func (c *Cluster) await(ctx context.Context, allowed bool) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, answer, err := c.ask(ctx, http.MethodPost, c.Host()+"/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json",
			`{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "locks", "resourceAttributes":
			{"namespace": "`+Namespace+`", "verb": "patch", "group": "coordination.k8s.io", "resource": "leases"}}}`)
		if err == nil && bytes.Contains(answer, []byte(fmt.Sprintf(`"allowed":%v`, allowed))) {
			return nil
		}
	}
	return fmt.Errorf("the API server has not noticed within a minute that the rights have changed (allowed: %v)", allowed)
}

// Crash kills both servers, and returns when they have started again.
func (c *Cluster) Crash(ctx context.Context) error {
	if err := errors.Join(c.API.Kill(), c.Etcd.Kill()); err != nil {
		return err
	}
	return errors.Join(c.Etcd.Restart(ctx), c.API.Restart(ctx))
}
