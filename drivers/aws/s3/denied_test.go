package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// findings are what doctor finds, as text.
func findings(t *testing.T, l *Locker) string {
	t.Helper()
	var b strings.Builder
	if err := l.Check(t.Context(), func(f driver.Finding) {
		fmt.Fprintf(&b, "%s: %s: %s %s %s %s\n", f.Subject, f.Level, f.Detail, f.Remedy, f.Command, f.Server)
	}); err != nil {
		t.Error(err)
	}
	return b.String()
}

// showsSecret reports whether a text shows a part of the credential, or of a signature.
func showsSecret(text string) bool {
	for _, secret := range []string{s3test.KeyID, s3test.Secret, s3test.SessionToken, "AWS4-HMAC", "Signature="} {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// What a person must mend is a lasting error, each kind of its own, with what helps; and doctor says the same.
func TestDenied(t *testing.T) {
	t.Parallel()
	skewed := func() time.Time { return time.Now().Add(-20 * time.Minute) }
	for what, c := range map[string]struct {
		bucket string
		spoil  func(*s3test.Server, *aws.Config)
		want   string
		doctor string // empty: the bucket is wrong, for the same reason
	}{
		"bucket": {"absent", nil, "the bucket absent does not exist: correct its name, or run: aws s3 mb s3://absent --region eu-test-1",
			""},
		"another's": {"", func(s *s3test.Server, _ *aws.Config) { s.Deny("*") }, "locks need s3:GetObject and s3:PutObject",
			"rights: wrong: the user may not s3:ListBucket, s3:GetObject, s3:PutObject in locks"},
		"redirected": {"", answers(301, "PermanentRedirect", http.Header{"X-Amz-Bucket-Region": {"eu-west-9"}}),
			"the bucket locks is in the region eu-west-9, not in eu-test-1: correct the region", ""},
		"redirected for a time": {"", answers(307, "TemporaryRedirect", http.Header{"X-Amz-Bucket-Region": {"eu-west-9"}}),
			"is in the region eu-west-9", ""},
		"signed for another region": {"", func(_ *s3test.Server, c *aws.Config) { c.Region = "us-wrong-1" },
			"the bucket locks is in the region eu-test-1, not in us-wrong-1", ""},
		"key": {"", func(_ *s3test.Server, c *aws.Config) {
			c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "AKIAWRONG", SecretAccessKey: s3test.Secret}, nil
			})
		}, "does not accept the credential (InvalidAccessKeyId)", ""},
		"secret": {"", answers(403, "SignatureDoesNotMatch", nil), "does not accept the credential (SignatureDoesNotMatch)", ""},
		"expired": {"", answers(400, "ExpiredToken", nil),
			"the credential has expired (ExpiredToken): renew it, such as by aws sso login, and start this program again", ""},
		"clock": {"", func(s *s3test.Server, c *aws.Config) {
			s.SetClock(skewed)
			answers(403, "RequestTimeTooSkewed", nil)(s, c)
		}, "differ by 20m", ""},
		"no conditional writes": {"", func(s *s3test.Server, _ *aws.Config) {
			s.SetFaults(func(r s3test.Request) s3test.Fault {
				if r.Action != "PutObject" {
					return s3test.Fault{}
				}
				return s3test.Fault{Status: 501, Code: "NotImplemented"}
			})
		}, "does not know conditional writes", "bucket: ok"},
		"archived": {"", answersFor("GetObject", 403, "InvalidObjectState"), "was moved to an archive",
			"store: wrong: a value cannot be read"},
		"Object Lock": {"", answersFor("PutObject", 400, "InvalidRequest"), "400 Bad Request: InvalidRequest", "bucket: ok"},
		"GetObject":   {"", denies("GetObject"), "AccessDenied", "rights: wrong: the user may not s3:GetObject in locks"},
		"PutObject":   {"", denies("PutObject"), "AccessDenied", "rights: wrong: the user may not s3:PutObject in locks"},
	} {
		server := s3test.Start(t)
		config := configFor(server.Endpoint())
		if c.spoil != nil {
			c.spoil(server, &config)
		}
		if c.bucket == "" {
			c.bucket = s3test.Bucket
		}
		_, err := New(t.Context(), config, c.bucket)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), c.want) || showsSecret(err.Error()) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		reader, err := New(t.Context(), config, c.bucket, onlyReads)
		if err != nil {
			t.Errorf("%s: opening to examine: %v", what, err)
			continue
		}
		found := findings(t, reader)
		if first, _, _ := strings.Cut(found, "\n"); c.doctor == "" && strings.HasPrefix(first, "bucket: wrong: ") {
			found, c.doctor = first, c.want
		}
		if c.doctor == "" || !strings.Contains(found, c.doctor) || showsSecret(found) {
			t.Errorf("%s: doctor found\n%s, want %q", what, found, c.doctor)
		}
		if err := reader.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func denies(action string) func(*s3test.Server, *aws.Config) {
	return func(s *s3test.Server, _ *aws.Config) { s.Deny(action) }
}

// answers makes a server answer everything with a failure, and answersFor an action.
func answers(status int, code string, header http.Header) func(*s3test.Server, *aws.Config) {
	return func(s *s3test.Server, _ *aws.Config) {
		s.SetFaults(func(s3test.Request) s3test.Fault { return s3test.Fault{Status: status, Code: code, Header: header} })
	}
}

func answersFor(action string, status int, code string) func(*s3test.Server, *aws.Config) {
	return func(s *s3test.Server, _ *aws.Config) {
		s.SetFaults(func(r s3test.Request) s3test.Fault {
			if r.Action != action {
				return s3test.Fault{}
			}
			return s3test.Fault{Status: status, Code: code}
		})
	}
}

// Without the right to write, locks can be looked at; to look sends no write.
func TestReading(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	lease := acquire(t, open(t, configFor(server.Endpoint())), "n", "a", 30*time.Second)
	server.Deny("PutObject")
	before := server.Requests("PutObject")
	reader := open(t, configFor(server.Endpoint()))
	r, err := reader.Inspect(t.Context(), "n")
	if err != nil || r.State != driver.StateHeld || r.Token != lease.Token {
		t.Errorf("%+v, %v", r, err)
	}
	for r, err := range reader.List(t.Context(), "") {
		if err != nil || r.Name != "n" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := server.Requests("PutObject"); n != before {
		t.Errorf("%d writes", n-before)
	}
}

const (
	versioned = `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>`
	retained  = `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode>` +
		`<Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>`
)

// rules is a lifecycle configuration of one rule.
func rules(status, rest string) string {
	return `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>r1</ID><Status>` + status + `</Status>` + rest +
		`</Rule></LifecycleConfiguration>`
}

// Doctor finds a bucket in order, and names what makes old versions pile up and what removes locks.
func TestCheck(t *testing.T) {
	t.Parallel()
	const expires, old = `<Expiration><Days>30</Days></Expiration>`,
		`<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>`
	for what, c := range map[string]struct {
		configs map[string]string
		deny    string
		want    []string
	}{
		"in order": {nil, "", []string{"bucket: ok", "AmazonS3", "rights: ok", "lifecycle rules: ok",
			"old versions: ok: the bucket keeps none", "clocks: ok", "store: ok", "conditional writes: not checked"}},
		"versions": {map[string]string{"versioning": versioned}, "", []string{"old versions: doubtful", "NoncurrentVersionExpiration"}},
		"versions that a rule removes": {map[string]string{"versioning": versioned, "lifecycle": rules("Enabled", "<Prefix/>"+old)}, "",
			[]string{`old versions: ok: the rule "r1" removes them after 1 days`, "lifecycle rules: ok"}},
		"a rule for others": {map[string]string{"versioning": versioned,
			"lifecycle": rules("Enabled", "<Filter><Prefix>logs/</Prefix></Filter>"+old+expires)}, "",
			[]string{"old versions: doubtful", "lifecycle rules: ok"}},
		"a rule that is off": {map[string]string{"versioning": versioned, "lifecycle": rules("Disabled", old+expires)}, "",
			[]string{"old versions: doubtful", "lifecycle rules: ok"}},
		"expiry": {map[string]string{"lifecycle": rules("Enabled", "<Filter><Prefix>team/</Prefix></Filter>"+expires)}, "",
			[]string{`lifecycle rules: doubtful: "r1" removes or moves locks`}},
		"expiry of some locks": {map[string]string{"lifecycle": rules("Enabled", "<Filter><Prefix>team/locks/a</Prefix></Filter>"+expires)}, "",
			[]string{"lifecycle rules: doubtful"}},
		"expiry below the locks": {map[string]string{"lifecycle": rules("Enabled",
			"<Filter><Prefix>team/locks/logs/</Prefix></Filter>"+expires)}, "", []string{"lifecycle rules: ok"}},
		"expiry of all": {map[string]string{"lifecycle": rules("Enabled", "<Filter/>"+expires)}, "", []string{"lifecycle rules: doubtful"}},
		"archive": {map[string]string{"lifecycle": rules("Enabled", "<Filter><And><Prefix>team</Prefix>"+
			"<ObjectSizeGreaterThan>1</ObjectSizeGreaterThan></And></Filter>"+
			"<Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition>")}, "", []string{"lifecycle rules: doubtful"}},
		"expiry of tagged objects": {map[string]string{"lifecycle": rules("Enabled",
			"<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>"+expires)}, "", []string{"lifecycle rules: ok"}},
		"only delete markers": {map[string]string{"lifecycle": rules("Enabled",
			"<Filter/><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>")}, "",
			[]string{"lifecycle rules: ok"}},
		"retention": {map[string]string{"versioning": versioned, "object-lock": retained}, "",
			[]string{"old versions: wrong", "default retention"}},
		"no right to ask for retention": {map[string]string{"versioning": versioned, "lifecycle": rules("Enabled", "<Prefix/>"+old)},
			"GetBucketObjectLockConfiguration",
			[]string{"old versions: not checked: the user may not s3:GetBucketObjectLockConfiguration", "lifecycle rules: ok"}},
		"no right to ask for retention, and no rule": {map[string]string{"versioning": versioned}, "GetBucketObjectLockConfiguration",
			[]string{"old versions: doubtful"}},
		"no right to ask": {nil, "GetBucketVersioning",
			[]string{"old versions: not checked: the user may not s3:GetBucketVersioning", "store: ok"}},
		"no right to ask for rules": {nil, "GetLifecycleConfiguration",
			[]string{"lifecycle rules: not checked: the user may not s3:GetLifecycleConfiguration", "old versions: ok"}},
	} {
		server := s3test.Start(t)
		for question, answer := range c.configs {
			server.SetConfig(question, answer)
		}
		server.Deny(c.deny)
		found := findings(t, open(t, configFor(server.Endpoint()), WithPrefix("team/locks")))
		for _, want := range c.want {
			if !strings.Contains(found, want) {
				t.Errorf("%s: doctor found\n%s, want %q", what, found, want)
			}
		}
		if keys := server.Keys(); len(keys) != 0 || showsSecret(found) {
			t.Errorf("%s: doctor has made %v, and found\n%s", what, keys, found)
		}
	}
}

// Doctor says when this machine's clock is far from the store's, and when those of the store's servers disagree.
func TestCheckClocks(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	l := openRacing(t, configFor(server.Endpoint()))
	if found := findings(t, l); !strings.Contains(found, "clocks: ok") || !strings.Contains(found, "conditional writes: ok") {
		t.Errorf("doctor found\n%s", found)
	}
	server.SetClock(func() time.Time { return time.Now().Add(5 * time.Minute) })
	if found := findings(t, open(t, configFor(server.Endpoint()))); !strings.Contains(found, "clocks: doubtful: this machine's is 5m") &&
		!strings.Contains(found, "clocks: doubtful: this machine's is 4m59s") {
		t.Errorf("doctor found\n%s", found)
	}
	if found := findings(t, l); !strings.Contains(found, "servers disagree") {
		t.Errorf("doctor found\n%s", found)
	}
}

// Credentials that expire, and that the store calls expired before this machine's clock does, are asked for again: no error that lasts.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	config := configFor(server.Endpoint())
	first, asked := config.Credentials, atomic.Int32{}
	config.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		asked.Add(1)
		found, err := first.Retrieve(ctx)
		found.CanExpire, found.Expires = true, time.Now().Add(time.Hour)
		return found, err
	})
	l := openRacing(t, config)
	before := asked.Load()
	answers(400, "ExpiredToken", nil)(server, nil)
	if _, err := l.Inspect(t.Context(), "n"); err == nil || driver.Lasting(err) || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("expired: %v", err)
	}
	server.SetFaults(nil)
	if _, err := l.Inspect(t.Context(), "n"); err != nil || asked.Load() == before {
		t.Errorf("%v; credentials were asked for %d times, and %d before", err, asked.Load(), before)
	}
}

// changed is a transport that changes answers.
type changed func(*http.Request, *http.Response)

func (f changed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		f(r, answer)
	}
	return answer, err
}

// A refusal without a code of S3 is not the store's: a proxy may have sent it in place of the store's answer.
func TestRefusalOfAnother(t *testing.T) {
	t.Parallel()
	var blocks atomic.Bool
	server := s3test.Start(t)
	config := configFor(server.Endpoint())
	config.HTTPClient = &http.Client{Transport: changed(func(r *http.Request, answer *http.Response) {
		if r.Method == http.MethodPut && blocks.Load() {
			_ = answer.Body.Close()
			answer.StatusCode, answer.Body, answer.ContentLength = http.StatusForbidden, io.NopCloser(strings.NewReader("blocked")), -1
		}
	})}
	l := openRacing(t, config)
	blocks.Store(true)
	_, err := l.TryAcquire(t.Context(), driver.Request{Name: "n", ID: driver.NewLeaseID("id"), Owner: "a", TTL: 30 * time.Second})
	if err == nil || driver.OutcomeKnown(err) || driver.Lasting(err) || !strings.Contains(err.Error(), "403 Forbidden") {
		t.Errorf("%v", err)
	}
	if server.Object("n") == nil {
		t.Errorf("nothing was written: %v", server.Keys())
	}
}

// Doctor does not take an answer for a permission that says nothing of it.
func TestCheckUnknownRights(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	answersFor("PutObject", 500, "InternalError")(server, nil)
	if found := findings(t, open(t, configFor(server.Endpoint()))); !strings.Contains(found,
		"rights: not checked: the store does not say whether s3:PutObject is allowed") || strings.Contains(found, "rights: ok") {
		t.Errorf("doctor found\n%s", found)
	}
}
