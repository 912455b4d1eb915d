package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// findings are what doctor finds, as text.
func findings(t *testing.T, l *Locker) string {
	t.Helper()
	var b strings.Builder
	if err := l.Capabilities().Checker.Check(t.Context(), func(f driver.Finding) {
		fmt.Fprintf(&b, "%s: %s: %s %s %s %s\n", f.Subject, f.Level, f.Detail, f.Remedy, f.Command, f.Server)
	}); err != nil {
		t.Error(err)
	}
	return b.String()
}

// showsSecret reports whether a text shows a part of the credential, or of a signature.
func showsSecret(text string) bool {
	for _, secret := range []string{dynamodbtest.KeyID, dynamodbtest.Secret, dynamodbtest.SessionToken, "AWS4-HMAC", "Signature="} {
		if strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// What a person must mend is a lasting error, each kind of its own, with what helps; and doctor says the same.
func TestDenied(t *testing.T) {
	t.Parallel()
	const secrets = " (AWS4-HMAC-SHA256 Credential=" + dynamodbtest.KeyID + " " + dynamodbtest.Secret + ")"
	answers := func(action, code string) func(*dynamodbtest.Server, *aws.Config) {
		return func(s *dynamodbtest.Server, _ *aws.Config) {
			s.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
				if action != "" && r.Action != action {
					return dynamodbtest.Fault{}
				}
				return dynamodbtest.Fault{Status: 400, Code: code, Message: "message" + secrets}
			})
		}
	}
	denies := func(action string) func(*dynamodbtest.Server, *aws.Config) {
		return func(s *dynamodbtest.Server, _ *aws.Config) { s.Deny(action) }
	}
	for what, c := range map[string]struct {
		spoil  func(*dynamodbtest.Server, *aws.Config)
		want   string
		doctor string // empty: the table is wrong, for the same reason
	}{
		"no right at all": {denies("*"), "the user may not dynamodb:DescribeTable on the table locks",
			"rights: wrong: the user may not dynamodb:GetItem, dynamodb:BatchGetItem, dynamodb:Scan, dynamodb:PutItem on locks"},
		"GetItem": {denies("GetItem"), "the user may not dynamodb:GetItem on the table locks (AccessDeniedException): User: arn:aws:iam::1:" +
			"user/app is not authorized", "rights: wrong: the user may not dynamodb:GetItem on locks"},
		"PutItem": {denies("PutItem"), "may not dynamodb:PutItem", "rights: wrong: the user may not dynamodb:PutItem on locks"},
		"key": {func(_ *dynamodbtest.Server, c *aws.Config) {
			c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "AKIAWRONG", SecretAccessKey: dynamodbtest.Secret}, nil
			})
		}, "does not accept the credential (UnrecognizedClientException)", ""},
		"region": {func(_ *dynamodbtest.Server, c *aws.Config) { c.Region = "us-wrong-1" }, "the secret key or the region is wrong", ""},
		"secret": {answers("", "InvalidSignatureException"), "does not accept the signature (InvalidSignatureException)", ""},
		"expired": {answers("", "ExpiredTokenException"),
			"the credential has expired (ExpiredTokenException): renew it, such as by aws sso login, and start this program again", ""},
		"none": {answers("", "MissingAuthenticationTokenException"), "does not accept the credential", ""},
		"clock": {func(s *dynamodbtest.Server, c *aws.Config) {
			s.SetClock(func() time.Time { return time.Now().Add(-20 * time.Minute) })
			answers("", "InvalidSignatureException")(s, c)
		}, "differ by 20m", ""},
		"too long": {func(s *dynamodbtest.Server, _ *aws.Config) {
			s.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
				if r.Action != "PutItem" {
					return dynamodbtest.Fault{}
				}
				return dynamodbtest.Fault{Status: 400, Code: "ValidationException", Message: "Item size has exceeded the maximum allowed size"}
			})
		}, "store less data with the lock", "table: ok"},
		"unknown": {answers("PutItem", "ValidationException"), "ValidationException: message", "table: ok"},
	} {
		server := dynamodbtest.Start(t)
		config := configFor(server.Endpoint())
		c.spoil(server, &config)
		_, err := New(t.Context(), config, dynamodbtest.Table)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), c.want) || showsSecret(strings.ReplaceAll(err.Error(),
			"AWS4-HMAC-SHA256 Credential=(not shown)", "")) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		reader := open(t, config)
		found := findings(t, reader)
		if first, _, _ := strings.Cut(found, "\n"); c.doctor == "" && strings.HasPrefix(first, "table: wrong: ") {
			found, c.doctor = first, c.want
		}
		if c.doctor == "" || !strings.Contains(found, c.doctor) || strings.Contains(found, dynamodbtest.Secret) {
			t.Errorf("%s: doctor found\n%s, want %q", what, found, c.doctor)
		}
		if len(server.Keys()) > 1 || len(server.Keys()) == 1 && server.Keys()[0] != "~probe" {
			t.Errorf("%s: there are %v", what, server.Keys())
		}
	}
}

// Without the right to write, locks can be looked at; to look sends no write.
func TestReading(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	lease := acquire(t, open(t, configFor(server.Endpoint())), "n", "a")
	server.Deny("PutItem")
	before := server.Requests("PutItem")
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
	if n := server.Requests("PutItem"); n != before {
		t.Errorf("%d writes", n-before)
	}
}

// Doctor finds a table in order, and names what makes requests fail and what removes locks.
func TestCheck(t *testing.T) {
	t.Parallel()
	provisioned := func(units int) func(*dynamodbtest.Server) {
		return func(s *dynamodbtest.Server) {
			d := dynamodbtest.Description()
			delete(d, "BillingModeSummary")
			d["ProvisionedThroughput"] = map[string]any{"ReadCapacityUnits": 100, "WriteCapacityUnits": units}
			s.SetTable(dynamodbtest.Table, d)
		}
	}
	deletes := func(attribute string) func(*dynamodbtest.Server) {
		return func(s *dynamodbtest.Server) { s.SetTTL("ENABLED", attribute) }
	}
	for what, c := range map[string]struct {
		spoil func(*dynamodbtest.Server)
		want  []string
	}{
		"in order": {func(*dynamodbtest.Server) {}, []string{"table: ok", "rights: ok", "capacity: ok: each request",
			"time to live: ok: the table has none", "clocks: ok", "store: ok", "conditional writes: not checked"}},
		"little capacity":       {provisioned(1), []string{"capacity: doubtful: the table has 1 units", "update-table --table-name locks"}},
		"capacity":              {provisioned(50), []string{"capacity: ok: 50 units for writes and 100 for reads"}},
		"TTL of locks":          {deletes(attrToken), []string{`time to live: doubtful`, `"fencingToken"`}},
		"TTL of something else": {deletes("expires"), []string{`time to live: ok`, `which no lock has`}},
		"no right to see the table": {func(s *dynamodbtest.Server) { s.Deny("DescribeTable") },
			[]string{"table: wrong: the user may not dynamodb:DescribeTable",
				"two regions could hold one lock", "rights: ok", "time to live: ok", "store: ok"}},
		"no right to see the TTL": {func(s *dynamodbtest.Server) { s.Deny("DescribeTimeToLive") },
			[]string{"time to live: not checked: the user may not dynamodb:DescribeTimeToLive", "store: ok"}},
		"another time": {func(s *dynamodbtest.Server) { s.SetClock(func() time.Time { return time.Now().Add(3 * time.Minute) }) },
			[]string{"clocks: doubtful: this machine's is"}},
	} {
		server := dynamodbtest.Start(t)
		c.spoil(server)
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
	l := openRacing(t, configFor(dynamodbtest.Start(t).Endpoint()))
	if found := findings(t, l); !strings.Contains(found, "conditional writes: ok") {
		t.Errorf("doctor found\n%s", found)
	}
}

// Credentials that expire, and that the store calls expired before this machine's clock does, are asked for again: no error that lasts.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
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
	func(s *dynamodbtest.Server, _ *aws.Config) {
		s.SetFaults(func(dynamodbtest.Request) dynamodbtest.Fault {
			return dynamodbtest.Fault{Status: 400, Code: "ExpiredTokenException"}
		})
	}(server, nil)
	if _, err := l.Inspect(t.Context(), "n"); err == nil || driver.Lasting(err) || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("expired: %v", err)
	}
	server.SetFaults(nil)
	if _, err := l.Inspect(t.Context(), "n"); err != nil || asked.Load() == before {
		t.Errorf("%v; credentials were asked for %d times, and %d before", err, asked.Load(), before)
	}
}
