package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// errNoLease is the error for an answer of something that is no API server.
var errNoLease = errors.New("the answer is no Lease: is there another server between this program and the API server?")

// status is what the API server says of a request that it has refused.
type status struct {
	Kind     string `json:"kind"`
	Message  string `json:"message"`
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Details struct {
		Kind   string `json:"kind"`
		Causes []struct {
			Reason string `json:"reason"`
		} `json:"causes"`
	} `json:"details"`
}

func statusOf(answer httpstore.Answer) (s status) {
	if json.Unmarshal(answer.Body, &s) != nil || s.Kind != "Status" {
		return status{}
	}
	return s
}

// refused is the error for an answer that is not what was asked for, with what helps.
func (s *store) refused(answer httpstore.Answer) error {
	st := statusOf(answer)
	err := answer.Failed(st.Message)
	switch {
	case answer.Missing() && st.Details.Kind == "namespaces":
		return driver.Denied(fmt.Errorf("the namespace %[1]s does not exist: correct the URL, or run: kubectl create namespace %[1]s",
			s.namespace))
	case answer.Missing():
		return driver.Denied(errors.New("the server does not know Leases (404): is it the API server of Kubernetes 1.14 or later?"))
	case answer.Status == http.StatusUnauthorized:
		return driver.Denied(errors.New("the API server does not accept the credential (401 Unauthorized): it may have expired, or client-go " +
			"has not sent it to an address of http:; kubectl auth whoami, with the same kubeconfig and context, shows it"))
	case answer.Status == http.StatusForbidden && len(st.Details.Causes) > 0 && st.Details.Causes[0].Reason == "NamespaceTerminating":
		return driver.Denied(fmt.Errorf("the namespace %s is being deleted (403)", s.namespace))
	case answer.Status == http.StatusForbidden && lacksRight(st.Message):
		return fmt.Errorf("%w; the rights that locks need are in deploy/kubernetes/locks-role.yaml", err)
	}
	return err
}

// lacksRight reports whether a message is that of missing rights, as the API server writes it: User "u" cannot get resource "leases".
// Quotas and webhooks refuse with 403, too.
func lacksRight(message string) bool {
	_, what, found := strings.Cut(message, " cannot ")
	return found && strings.Contains(what, "resource")
}

// unusable is the error for a configuration of which no client can be made. That of client-go may show a part of a certificate.
func unusable(err error) error {
	if os.IsNotExist(err) || os.IsPermission(err) {
		return fmt.Errorf("a file of the kubeconfig cannot be read: %w", err)
	}
	return driver.Invalid("configuration of the API server", "(not shown)",
		"complete: are certificates, keys and the credential plug-in valid?")
}

func connectError(err error) error { return &driver.OpError{Op: "connect", Backend: backend, Err: err} }
