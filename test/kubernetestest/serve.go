package kubernetestest

import (
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is what a request gets.
type answer struct {
	status int
	body   object
}

// refusal is an answer that is a Status.
func refusal(status int, reason, message, kind string) answer {
	return answer{status, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
		"message": message, "details": object{"kind": kind}}}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	namespace, name, found := s.route(r)
	verb := verbOf(r, name)
	s.mu.Lock()
	s.counts[verb]++
	s.used[verb] = r.Proto
	bearer := "Bearer " + s.token
	stalled, fault := s.stalled[stallKey(r, name, decode(body))], Fault{}
	if s.fault != nil {
		fault = s.fault(Request{verb, nameIn(r, name, decode(body))})
	}
	s.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-r.Context().Done():
			return
		}
	}
	var a answer
	switch {
	case fault.Status != 0:
		a = refusal(fault.Status, "InternalError", "a fault of the test", "leases")
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
	case r.Header.Get("Authorization") != bearer:
		a = refusal(http.StatusUnauthorized, "Unauthorized", "Unauthorized", "")
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		a = s.review(decode(body))
	case verb == "readyz":
		a = s.ready()
	case verb == "version":
		a = answer{http.StatusOK, object{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}}
	case !found:
		http.NotFound(w, r)
		return
	default:
		if a = s.allowed(verb, namespace); a.status != 0 {
			break
		}
		if verb == "watch" {
			s.watch(w, r, namespace, fieldName(r))
			return
		}
		if token := r.URL.Query().Get("continue"); fault.Expired && token != "" {
			a = refusal(http.StatusGone, "Expired", "The provided continue parameter is too old", "")
			part(a.body, "metadata")["continue"] = token + "\x00"
			break
		}
		for range map[bool]int{false: 1, true: 2}[fault.Twice] {
			a = s.do(r, verb, namespace, name, decode(body))
		}
	}
	if fault.Unanswered {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	now := s.now()
	s.mu.Unlock()
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(encode(a.body))
}

// route splits the path of a request for Leases.
func (s *Server) route(r *http.Request) (namespace, name string, found bool) {
	rest, is := strings.CutPrefix(r.URL.Path, path)
	parts := strings.Split(rest, "/")
	if !is || len(parts) < 2 || len(parts) > 3 || parts[1] != "leases" {
		return "", "", false
	}
	return parts[0], strings.Join(parts[2:], ""), true
}

func verbOf(r *http.Request, name string) string {
	switch {
	case r.URL.Path == "/readyz":
		return "readyz"
	case r.URL.Path == "/version":
		return "version"
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		return "review"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodPatch:
		return "patch"
	case r.Method == http.MethodDelete:
		return "delete"
	case r.URL.Query().Get("watch") != "":
		return "watch"
	case name != "":
		return "get"
	}
	return "list"
}

// stallKey is the name of the Lease that a request is about; empty for a list.
func stallKey(r *http.Request, name string, body object) string {
	if n := nameIn(r, name, body); n != "" {
		return n
	}
	if r.Method != http.MethodGet {
		return "-" // no Lease has this name
	}
	return ""
}

func nameIn(r *http.Request, name string, body object) string {
	if name == "" && r.Method == http.MethodPost && body != nil {
		name, _ = meta(body)["name"].(string)
	}
	if name == "" {
		return fieldName(r)
	}
	return name
}

// fieldName is the name that a list or a watch selects.
func fieldName(r *http.Request) string {
	return strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
}

// ready answers /readyz.
func (s *Server) ready() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts {
		return refusal(http.StatusForbidden, "Forbidden", `forbidden: User "test" cannot get path "/readyz"`, "")
	}
	return answer{http.StatusOK, object{}}
}

// allowed is a refusal, or an answer without a status.
func (s *Server) allowed(verb, namespace string) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.denied[verb] || s.denied["*"] || s.starts {
		return refusal(http.StatusForbidden, "Forbidden", `leases.coordination.k8s.io is forbidden: User "test" cannot `+verb+
			` resource "leases" in API group "coordination.k8s.io" in the namespace "`+namespace+`"`, "leases")
	}
	return answer{}
}

// review answers whether a verb is allowed.
func (s *Server) review(body object) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.denied["review"] {
		return refusal(http.StatusForbidden, "Forbidden", "selfsubjectaccessreviews is forbidden", "")
	}
	verb, _ := part(part(body, "spec"), "resourceAttributes")["verb"].(string)
	body["status"] = object{"allowed": !s.denied[verb] && !s.denied["*"]}
	return answer{http.StatusCreated, body}
}

// do does what a request asks for.
func (s *Server) do(r *http.Request, verb, namespace, name string, body object) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := s.leases[namespace]
	switch {
	case verb == "list":
		return s.list(r, leases)
	case body == nil && slices.Contains([]string{"create", "patch", "update"}, verb): // such as Protocol Buffers
		return refusal(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body is not JSON", "leases")
	case verb == "create" && leases == nil:
		return refusal(http.StatusNotFound, "NotFound", `namespaces "`+namespace+`" not found`, "namespaces")
	case verb == "create":
		return s.create(r, namespace, body)
	case leases[name] == nil:
		return refusal(http.StatusNotFound, "NotFound", `leases.coordination.k8s.io "`+name+`" not found`, "leases")
	case verb == "get":
		return answer{http.StatusOK, decode(encode(leases[name]))}
	case verb == "patch" && r.Header.Get("Content-Type") == "application/merge-patch+json":
		return s.patch(namespace, name, manager(r), body)
	case verb == "delete":
		s.remove(namespace, name)
		return answer{http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"}}
	case verb == "update":
		return s.update(namespace, name, manager(r), body)
	}
	return refusal(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "not supported", "leases")
}

// manager is who writes, as managedFields name it.
func manager(r *http.Request) string {
	if m := r.URL.Query().Get("fieldManager"); m != "" {
		return m
	}
	m, _, _ := strings.Cut(r.UserAgent(), "/")
	return m
}

// list answers a page; the token is the name after which it goes on.
func (s *Server) list(r *http.Request, leases map[string]object) answer {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	label, value, _ := strings.Cut(query.Get("labelSelector"), "=")
	if only := fieldName(r); only != "" {
		leases = map[string]object{only: leases[only]}
	}
	var names []string
	after := query.Get("continue")
	for name, o := range leases {
		if o != nil && name > after && (label == "" || part(meta(o), "labels")[label] == value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	m := object{"resourceVersion": strconv.FormatUint(s.version, 10)}
	if limit > 0 && len(names) > limit {
		names = names[:limit]
		m["continue"] = names[limit-1]
	}
	items := []any{}
	for _, name := range names {
		items = append(items, decode(encode(leases[name])))
	}
	return answer{http.StatusOK, object{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": m, "items": items}}
}

func (s *Server) create(r *http.Request, namespace string, body object) answer {
	name, _ := meta(body)["name"].(string)
	if body == nil || !isSubdomain(name) {
		return refusal(http.StatusUnprocessableEntity, "Invalid", "metadata.name: Invalid value", "leases")
	}
	if s.leases[namespace][name] != nil {
		return refusal(http.StatusConflict, "AlreadyExists", `leases.coordination.k8s.io "`+name+`" already exists`, "leases")
	}
	if r.URL.Query().Get("dryRun") != "" {
		return answer{http.StatusCreated, body}
	}
	meta(body)["namespace"] = namespace
	return s.store(namespace, name, manager(r), nil, body, http.StatusCreated)
}

func (s *Server) update(namespace, name, by string, body object) answer {
	old := s.leases[namespace][name]
	if v, _ := meta(body)["resourceVersion"].(string); v != "" && v != meta(old)["resourceVersion"] {
		return conflict(name)
	}
	return s.store(namespace, name, by, old, body, http.StatusOK)
}

func (s *Server) patch(namespace, name, by string, patch object) answer {
	old := s.leases[namespace][name]
	if old == nil || patch == nil {
		return refusal(http.StatusNotFound, "NotFound", "not found", "leases")
	}
	if v, _ := meta(patch)["resourceVersion"].(string); v != "" && v != meta(old)["resourceVersion"] {
		return conflict(name)
	}
	return s.store(namespace, name, by, old, merge(decode(encode(old)), patch), http.StatusOK)
}

// remove deletes an object.
func (s *Server) remove(namespace, name string) {
	o := decode(encode(s.leases[namespace][name]))
	s.version++
	meta(o)["resourceVersion"] = strconv.FormatUint(s.version, 10)
	delete(s.leases[namespace], name)
	s.report("DELETED", namespace, name, o)
}

func conflict(name string) answer {
	return refusal(http.StatusConflict, "Conflict", `Operation cannot be fulfilled on leases.coordination.k8s.io "`+name+
		`": the object has been modified; please apply your changes to the latest version and try again`, "leases")
}

// merge applies a merge patch.
func merge(o, patch object) object {
	for key, value := range patch {
		inner, is := value.(object)
		switch {
		case value == nil:
			delete(o, key)
		case is:
			o[key] = merge(part(o, key), inner)
		default:
			o[key] = value
		}
	}
	return o
}

// store writes an object, unless nothing has changed.
func (s *Server) store(namespace, name, by string, old, o object, status int) answer {
	spec := part(o, "spec")
	if d, is := spec["leaseDurationSeconds"].(float64); is && d <= 0 {
		return refusal(http.StatusUnprocessableEntity, "Invalid", "spec.leaseDurationSeconds: must be greater than 0", "leases")
	}
	size := 0
	for key, value := range part(meta(o), "annotations") {
		text, _ := value.(string)
		size += len(key) + len(text)
	}
	if size > 256<<10 {
		return refusal(http.StatusUnprocessableEntity, "Invalid", "metadata.annotations: Too long", "leases")
	}
	m := meta(o)
	m["name"], m["managedFields"] = name, meta(orEmpty(old))["managedFields"]
	if old != nil {
		m["resourceVersion"] = meta(old)["resourceVersion"]
		if string(encode(o)) == string(encode(old)) {
			return answer{status, decode(encode(o))}
		}
	}
	s.stamp(by, old, o)
	s.version++
	m["resourceVersion"] = strconv.FormatUint(s.version, 10)
	s.leases[namespace][name] = o
	kind := "MODIFIED"
	if old == nil {
		kind = "ADDED"
	}
	s.report(kind, namespace, name, o)
	return answer{status, decode(encode(o))}
}

func orEmpty(o object) object {
	if o == nil {
		return object{}
	}
	return o
}

// adds reports whether an object has a field that another has not, or has with another value.
func adds(before, after object) bool {
	for field, value := range after {
		inner, is := value.(object)
		if old, was := before[field].(object); is && was {
			if adds(old, inner) {
				return true
			}
		} else if !reflect.DeepEqual(before[field], value) {
			return true
		}
	}
	return false
}

// stamp notes in managedFields who has changed which fields of the spec, and when. Others no longer own these. A write that only removes
// fields is not noted.
func (s *Server) stamp(by string, old, o object) {
	if s.noTimes {
		delete(meta(o), "managedFields")
		return
	}
	clock := s.now
	if s.stamps != nil {
		clock = s.stamps
	}
	before, after := part(orEmpty(old), "spec"), part(o, "spec")
	own := object{}
	var others []any
	entries, _ := meta(o)["managedFields"].([]any)
	changed := func(field string) bool { return before[field] != after[field] }
	noted := adds(orEmpty(old), o)
	for _, e := range entries {
		entry, _ := e.(object)
		entry = decode(encode(entry))
		fields := part(part(entry, "fieldsV1"), "f:spec")
		if noted && entry["manager"] == by {
			own = fields
			continue
		}
		for f := range fields {
			if changed(strings.TrimPrefix(f, "f:")) {
				delete(fields, f)
			}
		}
		others = append(others, entry)
	}
	if !noted {
		meta(o)["managedFields"] = others
		return
	}
	for field := range after {
		if changed(field) {
			own["f:"+field] = object{}
		}
	}
	for f := range own {
		if _, is := after[strings.TrimPrefix(f, "f:")]; !is {
			delete(own, f)
		}
	}
	meta(o)["managedFields"] = append(others, object{"manager": by, "operation": "Update", "apiVersion": "coordination.k8s.io/v1",
		"time": clock().UTC().Format(time.RFC3339), "fieldsType": "FieldsV1",
		"fieldsV1": object{"f:metadata": object{"f:annotations": object{}}, "f:spec": own}})
}

// isSubdomain reports whether a name is one of a Lease: labels of small letters, digits and dashes within, and dots between them.
func isSubdomain(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, "-") != label || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return len(name) <= 253
}
