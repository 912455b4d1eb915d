package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// serviceAccount is the folder in which client-go looks for the credential of a pod.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// load finds the API server, the credential and the namespace as kubectl does: in a file that is named, in those of the variable
// KUBECONFIG, in ~/.kube/config, and in a pod with its service account.
//
// Promise 1: a URL that names a file or a context means the same locks in a pod as elsewhere. client-go's deferred loader has the pod's
// service account stand in for what such a file lacks: for all of it, or for the namespace alone, of another cluster.
func (p place) load() (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false // the error below says it
	the := "the kubeconfig"
	if p.kubeconfig != "" {
		rules.ExplicitPath = p.kubeconfig
		if _, err := os.Stat(p.kubeconfig); err != nil {
			return nil, "", fmt.Errorf("the kubeconfig cannot be read: %w", err)
		}
		the += " " + strconv.Quote(p.kubeconfig) // whole: its end says which one it is
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: p.context}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if p.kubeconfig != "" || p.context != "" {
		raw, err := rules.Load()
		if err != nil {
			return nil, "", unreadable(the)
		}
		loader = clientcmd.NewNonInteractiveClientConfig(*raw, p.context, overrides, rules)
	}
	config, err = loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err) && (p.kubeconfig != "" || p.context != ""):
		return nil, "", errors.New(the + " has no cluster in its current context, or no current context: correct the file, or name " +
			"another context in the URL parameter " + paramContext)
	case clientcmd.IsEmptyConfig(err) && os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return nil, "", errors.New("this pod has no token of a service account in " + serviceAccount + ": remove " +
			"automountServiceAccountToken: false from the pod and its service account, or name a kubeconfig in the URL parameter " +
			paramKubeconfig)
	case clientcmd.IsEmptyConfig(err):
		return nil, "", errors.New("there is no kubeconfig, and this is no pod with a service account: name one in the URL parameter " +
			paramKubeconfig + ", or in the variable KUBECONFIG")
	case err != nil && p.context != "" && strings.Contains(err.Error(), "context"):
		return nil, "", fmt.Errorf("%s has no usable context %s (kubectl config get-contexts lists them)", the, driver.Quote(p.context))
	case err != nil:
		return nil, "", unreadable(the)
	}
	if namespace = p.namespace; namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", errors.New(the + " has no usable namespace: name it in the URL, as in kubernetes://NAMESPACE")
		}
		err = checkNamespace("namespace of the kubeconfig", namespace)
	}
	return config, namespace, err
}

// unreadable is the error for a kubeconfig that client-go refuses. The text of a parser may show a part of the file.
func unreadable(the string) error {
	return errors.New(the + " cannot be used: kubectl cluster-info, with the same file and context, says why")
}

const (
	// maxAnswer bounds an answer. An object has 1.5 MiB at most, and a page of a list seldom has more than 5.
	maxAnswer = 64 << 20
	agent     = "holdfast"
)

// connect makes the clients for an API server: requests for a Locker's calls, and watches for what goes on for minutes. closeIdle
// closes those of their connections that are not in use.
func connect(config *rest.Config) (base string, requests, watches *httpstore.Client, closeIdle func(), err error) {
	own := rest.CopyConfig(config)
	own.Timeout = 0 // that of each call's context applies
	if own.UserAgent == "" {
		own.UserAgent = agent
	}
	if own.ExecProvider != nil { // nobody may be there to answer
		own.ExecProvider = own.ExecProvider.DeepCopy()
		own.ExecProvider.StdinUnavailable, own.ExecProvider.StdinUnavailableMessage = true, "a lock is renewed without a person"
	}
	server, _, err := rest.DefaultServerUrlFor(own)
	if err != nil || server.User != nil {
		return "", nil, nil, nil, driver.Invalid("API server", "of the configuration", "a URL without a user, such as https://10.0.0.1:6443")
	}
	if own.BearerTokenFile != "" { // a token that is refused is read again, and not only every minute
		tokens := transport.NewCachedFileTokenSource(own.BearerTokenFile)
		if _, err := tokens.Token(); err != nil {
			return "", nil, nil, nil, unusable(err)
		}
		own.Wrap(transport.ResettableTokenSourceWrapTransport(tokens))
		own.BearerToken, own.BearerTokenFile = "", ""
	}
	watched, err := rest.HTTPClientFor(own)
	if err != nil {
		return "", nil, nil, nil, unusable(err)
	}
	if own.Transport == nil { // else the program's decides
		own.NextProtos = []string{"http/1.1"}
	}
	asked, err := rest.HTTPClientFor(own)
	if err != nil {
		return "", nil, nil, nil, unusable(err)
	}
	closeIdle = func() {
		for _, c := range []*http.Client{asked, watched} {
			if c.Transport != nil {
				utilnet.CloseIdleConnectionsFor(c.Transport)
			}
		}
	}
	requests, watches = httpstore.New(bounded(asked, own), maxAnswer), httpstore.New(bounded(watched, own), maxAnswer)
	return strings.TrimSuffix(server.String(), "/"), requests, watches, closeIdle, nil
}

// bounded makes the requests of a client end with their contexts, although a plug-in that gets a credential may hang.
func bounded(client *http.Client, config *rest.Config) *http.Client {
	if config.ExecProvider == nil && config.AuthProvider == nil {
		return client
	}
	c := *client
	c.Transport = boundedTransport{client.Transport, make(chan struct{}, maxRequests)}
	return &c
}

type boundedTransport struct {
	http.RoundTripper
	running chan struct{} // has one for each goroutine
}

// RoundTrip implements [http.RoundTripper]. A plug-in is a process that nobody else can end, and client-go waits for it without a
// limit. So the goroutine outlives the request until then; what it gets is closed. While the most of them run, no other one begins.
func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	type result struct {
		resp *http.Response
		err  error
	}
	var sent atomic.Bool // past the plug-in, which is asked again after an answer that refuses the token
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(true) }, GotFirstResponseByte: func() { sent.Store(false) },
	})
	waiting := func() error {
		if sent.Load() {
			return ctx.Err()
		}
		return fmt.Errorf("%w (is the credential plug-in of the kubeconfig waiting?)", ctx.Err())
	}
	select {
	case t.running <- struct{}{}:
	case <-ctx.Done():
		return nil, waiting()
	}
	got := make(chan result, 1)
	go func() {
		defer func() { <-t.running }()
		resp, err := t.RoundTripper.RoundTrip(req.WithContext(ctx))
		if ctx.Err() != nil && err == nil {
			_ = resp.Body.Close()
			resp, err = nil, ctx.Err()
		}
		got <- result{resp, err}
	}()
	select {
	case r := <-got:
		return r.resp, r.err
	case <-ctx.Done():
		return nil, waiting()
	}
}
