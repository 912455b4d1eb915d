package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// What Check examines, in addition to package cas.
const (
	subjectBucket   = "bucket"
	subjectRights   = "rights"
	subjectVersions = "old versions"
	subjectRules    = "lifecycle rules"
	subjectClocks   = "clocks"
)

// doctorKey is the key of no object: no lock has it, and nothing is written there.
const doctorKey = "~doctor"

// Check implements [driver.Checker].
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	r := driverutil.Report(report)
	s := l.store
	var rules []rule
	return driverutil.CheckSteps(ctx, backend, nil,
		func(ctx context.Context) bool { return s.checkBucket(ctx, r) },
		func(ctx context.Context) bool { return s.checkRights(ctx, r) },
		func(ctx context.Context) bool { rules = s.checkRules(ctx, r); return ctx.Err() == nil },
		func(ctx context.Context) bool { s.checkVersions(ctx, r, rules); return ctx.Err() == nil },
		func(ctx context.Context) bool { s.checkClocks(r); return ctx.Err() == nil },
		func(ctx context.Context) bool { return l.Locker.Check(ctx, report) == nil },
	)
}

// askLimit is the time limit of each request.
const askLimit = 5 * time.Second

// ask makes a request, and reports whether its answer is a denial for want of a right.
func (s *store) ask(ctx context.Context, r httpstore.Request) (answer httpstore.Answer, denied bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err = s.send(ctx, r)
	return answer, err == nil && answer.Status == http.StatusForbidden && failureOf(answer).Code == "AccessDenied", err
}

// listing asks for a page of one key.
func (s *store) listing() httpstore.Request {
	query := url.Values{"list-type": {"2"}, "prefix": {s.prefix}, "max-keys": {"1"}}
	return httpstore.Request{Method: http.MethodGet, URL: s.at + "/?" + encode(query)}
}

// checkBucket reports whether the store answers, the credential is accepted, and the bucket is there.
func (s *store) checkBucket(ctx context.Context, r driverutil.Report) (goOn bool) {
	answer, denied, err := s.ask(ctx, s.listing())
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		r.Wrong(subjectBucket, "Make sure that the region or the endpoint is right and reachable, and that AWS's SDK finds credentials.", "",
			"it does not answer: %v", driver.ErrorText(err))
		return false
	case !answer.Done() && !denied:
		r.Wrong(subjectBucket, "Correct what the message names.", "", "%v", driver.ErrorText(s.refused(answer)))
		return false
	}
	r.Of(answer.Header.Get("Server")).OK(subjectBucket, "it answers, and accepts the credential")
	return true
}

// checkRights reports the actions that are missing. It writes nothing: the write demands a version of an object that does not exist.
func (s *store) checkRights(ctx context.Context, r driverutil.Report) (goOn bool) {
	var missing []string
	for _, c := range []struct {
		action string
		r      httpstore.Request
	}{
		{"s3:ListBucket", s.listing()},
		{"s3:GetObject", httpstore.Request{Method: http.MethodGet, URL: s.object(doctorKey)}},
		{"s3:PutObject", httpstore.Request{Method: http.MethodPut, URL: s.object(doctorKey), Body: []byte("{}"),
			Header: http.Header{"If-Match": {`"no-such-version"`}}}},
	} {
		answer, denied, err := s.ask(ctx, c.r)
		known := answer.Done() || hasNoObject(answer) || answer.Status == http.StatusPreconditionFailed || answer.Status == http.StatusConflict
		if err == nil && !known && !denied {
			err = s.refused(answer)
		}
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			r.Unchecked(subjectRights, "Check again.", "the store does not say whether %s is allowed: %v", c.action, driver.ErrorText(err))
			return true
		case denied:
			missing = append(missing, c.action)
		}
	}
	if len(missing) > 0 {
		r.Wrong(subjectRights, "Allow them by a policy of the user or the role; docs/s3.md has one. Without s3:ListBucket S3 also refuses to "+
			"read what does not exist.", "", "the user may not %s in %s", strings.Join(missing, ", "), s.place())
		return false
	}
	r.OK(subjectRights, "the user may s3:ListBucket, s3:GetObject, s3:PutObject in %s", s.place())
	return true
}

// place is where the objects are, for messages.
func (s *store) place() string { return strings.TrimSuffix(s.bucket+"/"+s.prefix, "/") }

// rule is a lifecycle rule of a bucket.
type rule struct {
	ID, Status string
	Prefix     string
	Filter     struct {
		Prefix string
		Tag    *struct{}
		And    *struct {
			Prefix string
			Tag    []struct{}
		}
	}
	Expiration *struct{ Days, Date string }
	Transition []struct{ StorageClass string }
	OldDays    string `xml:"NoncurrentVersionExpiration>NoncurrentDays"`
}

// prefixOf is what the keys of a rule's objects begin with. Locks have no tags.
func (r rule) prefixOf() (prefix string, enabled bool) {
	prefix = r.Prefix + r.Filter.Prefix
	tagged := r.Filter.Tag != nil
	if r.Filter.And != nil {
		prefix, tagged = r.Filter.And.Prefix, len(r.Filter.And.Tag) > 0
	}
	return prefix, r.Status == "Enabled" && !tagged
}

// question reads a configuration of the bucket into v. It returns false if there is none; unknown is why that cannot be said.
func (s *store) question(ctx context.Context, name, action string, v any) (found bool, unknown error) {
	answer, denied, err := s.ask(ctx, httpstore.Request{Method: http.MethodGet, URL: s.at + "/?" + name + "="})
	switch {
	case err != nil:
		return false, err
	case denied:
		return false, fmt.Errorf("the user may not %s", action)
	case answer.Missing(), answer.Status == http.StatusNotImplemented: // a store without such a thing
		return false, nil
	case !answer.Done():
		return false, s.refused(answer)
	case xml.NewDecoder(bytes.NewReader(answer.Body)).Decode(v) != nil:
		return false, errNoObject
	}
	return true, nil
}

// checkRules reports the lifecycle rules that remove or move objects of locks, and returns all rules.
func (s *store) checkRules(ctx context.Context, r driverutil.Report) []rule {
	var all struct {
		XMLName xml.Name `xml:"LifecycleConfiguration"`
		Rules   []rule   `xml:"Rule"`
	}
	_, err := s.question(ctx, "lifecycle", "s3:GetLifecycleConfiguration", &all)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		r.Unchecked(subjectRules, "Make sure that no rule removes or moves objects of locks.", "%v", driver.ErrorText(err))
		return nil
	}
	var harmful []string
	for _, x := range all.Rules {
		prefix, enabled := x.prefixOf()
		removes := x.Expiration != nil && x.Expiration.Days+x.Expiration.Date != ""
		rest, within := strings.CutPrefix(prefix, s.prefix)
		within = within && !strings.Contains(rest, "/") // no lock has one behind the prefix
		if enabled && (removes || len(x.Transition) > 0) && (within || strings.HasPrefix(s.prefix, prefix)) {
			harmful = append(harmful, driver.Quote(x.ID))
		}
	}
	if len(harmful) > 0 {
		r.Doubtful(subjectRules, "Limit the rules to prefixes without locks.", "%s removes or moves locks that nobody has used for some time: "+
			"with their data and history, and held ones whose TTL is longer", strings.Join(harmful, ", "))
		return all.Rules
	}
	r.OK(subjectRules, "none removes or moves locks")
	return all.Rules
}

// checkVersions reports whether the bucket keeps the old versions of objects: every renewal leaves one.
func (s *store) checkVersions(ctx context.Context, r driverutil.Report, rules []rule) {
	var versioning struct {
		XMLName xml.Name `xml:"VersioningConfiguration"`
		Status  string
	}
	_, err := s.question(ctx, "versioning", "s3:GetBucketVersioning", &versioning)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.Unchecked(subjectVersions, "Make sure that the bucket has no versioning, or a rule that removes old versions.", "%v",
			driver.ErrorText(err))
		return
	case versioning.Status != "Enabled":
		r.OK(subjectVersions, "the bucket keeps none")
		return
	}
	var lock struct {
		XMLName   xml.Name  `xml:"ObjectLockConfiguration"`
		Retention *struct{} `xml:"Rule>DefaultRetention"`
	}
	found, err := s.question(ctx, "object-lock", "s3:GetBucketObjectLockConfiguration", &lock)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil && found && lock.Retention != nil:
		r.Wrong(subjectVersions, "Use a bucket without a default retention of Object Lock.", "",
			"the bucket has one: each renewal leaves a version that cannot be removed before its time, and the store may refuse all writes")
		return
	}
	for _, x := range rules {
		if prefix, enabled := x.prefixOf(); enabled && x.OldDays != "" && strings.HasPrefix(s.prefix, prefix) {
			if err != nil { // a retention would keep them
				r.Unchecked(subjectVersions, "Make sure that the bucket has no default retention of Object Lock.", "%v", driver.ErrorText(err))
				return
			}
			r.OK(subjectVersions, "the rule %s removes them after %s days", driver.Quote(x.ID), x.OldDays)
			return
		}
	}
	r.Doubtful(subjectVersions, "Add a lifecycle rule with NoncurrentVersionExpiration and NoncurrentDays 1 for the prefix of the locks, "+
		"or use a bucket without versioning.", "the bucket keeps all of them: a held lock leaves 8,640 a day, which are paid for")
}

// maxSkew is how far the clocks of this machine and the store may differ without a finding. S3 refuses requests above 15 minutes.
const maxSkew = time.Minute

// checkClocks reports whether the answers so far were by one clock, and how far that is from this machine's.
func (s *store) checkClocks(r driverutil.Report) {
	skew, known := s.calls.Clocks.Skew(time.Now())
	switch {
	case s.calls.Clocks.Disagree():
		r.Doubtful(subjectClocks, "Synchronize the clocks of the store's servers by NTP.",
			"those of the store's servers disagree: locks of dead holders are taken over later, and a lease may end early")
	case known && skew.Abs() > maxSkew:
		r.Doubtful(subjectClocks, "Synchronize this machine's clock by NTP.", "this machine's is %s from the store's: leases do not depend "+
			"on it, but S3 refuses all requests when it is 15 minutes", driver.FormatDuration(skew.Abs().Round(time.Second)))
	case !known:
		r.Unchecked(subjectClocks, "Look for what removes the header Date from answers.", "no answer said what time it is")
	default:
		r.OK(subjectClocks, "the answers are by one clock, and this machine's agrees with it")
	}
}
