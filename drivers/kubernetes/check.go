package kubernetes

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// What Check examines, in addition to package cas.
const (
	subjectServer = "API server"
	subjectRights = "rights"
	subjectClocks = "clocks"
)

// verbs are what locks need on Leases, and for what.
var verbs = []string{"get", "list", "watch", "create", "patch"}

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	r, found := driverutil.Report(report), false
	steps, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.closing, cancel)() //nolint:contextcheck // the Locker's lifetime applies besides the caller's context
	err := driverutil.CheckSteps(steps, backend, func() bool { return l.closing.Err() != nil },
		func(ctx context.Context) bool { return l.store.checkServer(ctx, r) },
		func(ctx context.Context) bool { return l.store.checkRights(ctx, r) },
		func(ctx context.Context) bool { l.store.checkClocks(r); found = ctx.Err() == nil; return found },
	)
	if err != nil || !found {
		return err
	}
	return l.Locker.Check(ctx, report)
}

// ask sends a request of Check, with the time limit of a call.
func (s *store) ask(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return s.send(ctx, r)
}

// checkServer reports whether the server answers, the credential is accepted, and the namespace exists: it asks for a Lease to be
// made, but only tried.
func (s *store) checkServer(ctx context.Context, r driverutil.Report) (goOn bool) {
	name := leaseName(s.prefix, "holdfast-doctor-dry-run")
	text, err := body(name, nil, "")
	var answer httpstore.Answer
	if err == nil {
		answer, err = s.ask(ctx, httpstore.Request{Method: http.MethodPost, URL: s.leases() + "?dryRun=All&fieldManager=" + agent, Body: text,
			Header: http.Header{"Content-Type": {"application/json"}}})
	}
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		r.Wrong(subjectServer, "Make sure that the address of the kubeconfig is right and reachable.", "",
			"it does not answer: %v", driver.ErrorText(err))
		return false
	case answer.Status == http.StatusForbidden, // which verb is missing is examined next
		strings.Contains(statusOf(answer).Message, "dry run"): // an admission webhook that cannot try
	case !answer.Done() && answer.Status != http.StatusConflict:
		remedy := "Correct what the message names."
		if answer.Missing() && statusOf(answer).Details.Kind == "namespaces" {
			r.Wrong(subjectServer, "Correct the namespace in the URL, or create it.", "kubectl create namespace "+s.namespace,
				"the namespace %s does not exist", s.namespace)
			return false
		}
		r.Wrong(subjectServer, remedy, "", "%v", driver.ErrorText(s.refused(answer)))
		return false
	}
	r.Of(s.version(ctx)).OK(subjectServer, "it answers, and accepts the credential")
	return true
}

// version is what the API server says of itself, or empty: by default every user may ask (system:public-info-viewer).
func (s *store) version(ctx context.Context) string {
	answer, err := s.ask(ctx, httpstore.Request{Method: http.MethodGet, URL: s.server + "/version"})
	var found struct{ GitVersion string }
	if err != nil || !answer.Done() || json.Unmarshal(answer.Body, &found) != nil || found.GitVersion == "" {
		return ""
	}
	return "Kubernetes " + found.GitVersion
}

// checkRights reports the verbs that are missing.
func (s *store) checkRights(ctx context.Context, r driverutil.Report) (goOn bool) {
	var missing []string
	for _, verb := range verbs {
		allowed, err := s.mayDo(ctx, verb)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			r.Unchecked(subjectRights, "Compare the role with deploy/kubernetes/locks-role.yaml.",
				"the API server does not say which the user has: %v", driver.ErrorText(err))
			return true
		case !allowed:
			missing = append(missing, verb)
		}
	}
	if len(missing) == 0 {
		r.OK(subjectRights, "the user may %s Leases of the namespace %s", strings.Join(verbs, ", "), s.namespace)
		return true
	}
	r.Wrong(subjectRights, "Bind the user to a role with these verbs, such as deploy/kubernetes/locks-role.yaml, or run this and bind it:",
		"kubectl -n "+s.namespace+" create role holdfast-locks --verb="+strings.Join(verbs, ",")+" --resource=leases.coordination.k8s.io",
		"the user may not %s Leases of the namespace %s", strings.Join(missing, ", "), s.namespace)
	return false
}

// mayDo asks the API server whether the user has a right.
func (s *store) mayDo(ctx context.Context, verb string) (bool, error) {
	text, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{"namespace": s.namespace, "verb": verb, "group": "coordination.k8s.io",
			"resource": "leases"}}})
	if err != nil {
		return false, err
	}
	answer, err := s.ask(ctx, httpstore.Request{Method: http.MethodPost,
		URL: s.server + "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Body: text,
		Header: http.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return false, err
	}
	var review struct {
		Status *struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if !answer.Done() || json.Unmarshal(answer.Body, &review) != nil || review.Status == nil {
		return false, answer.Failed(statusOf(answer).Message)
	}
	return review.Status.Allowed, nil
}

// checkClocks reports whether the answers so far were by one clock.
func (s *store) checkClocks(r driverutil.Report) {
	if s.clocks.Disagree() {
		r.Doubtful(subjectClocks, "Synchronize the clocks of the API servers by NTP.", "those of the API servers disagree: locks of dead "+
			"holders are taken over later, and a lease may end early")
		return
	}
	r.OK(subjectClocks, "the answers are by one clock")
}
