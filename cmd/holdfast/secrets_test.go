package main

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
)

func TestRedact(t *testing.T) {
	for _, arg := range []string{
		"mongodb://u:sEcReT@h/db", "mongodb+srv://u:sEc sEcReT@h", "mongodb://u:p/sEcReT@h?x=1", "azblob://a/c?sig=sEcReT", "MONGODB://sEcReT@h",
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=sEcReT==", "--password=sEcReT", "mongodb://u@h/?x=sEcReT",
		"mongodb://h/app?tlsCertificateKeyFile=/c.pem&tlsCertificateKeyFilePassword=sEcReT", "mongodb://h/app?proxyHost=x&proxyPassword=sEcReT",
		"mongodb://h/app?authMechanismProperties=AWS_SESSION_TOKEN:sEcReT", "mongodb://h/app?authMechanismProperties=aws_session_token%3AsEcReT",
	} {
		if got := redact("unexpected argument " + arg + ", sorry"); strings.Contains(got, "sEcReT") ||
			!strings.HasPrefix(got, "unexpected argument") {
			t.Errorf("%s: %s", arg, got)
		}
		if checkName(arg) == nil {
			t.Errorf("%s is accepted as a name", arg)
		}
	}
	for _, arg := range []string{"job", "https://example.com/job", "team/job@host", "job:nightly@host", "a=b"} {
		if got := redact(arg); got != arg {
			t.Errorf("%s: %s", arg, got)
		}
		if err := checkName(arg); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// AWS's variables are the backend's credentials if MongoDB's driver reads them, and otherwise those of
// the command, which may work with AWS.
func TestAWSVariables(t *testing.T) {
	for backend, want := range map[string]bool{
		"mongodb://h/app?authMechanism=MONGODB-AWS":                                       true,
		"mongodb+srv://h/app?tls=true&authmechanism=mongodb%2Daws&authSource=%24external": true,
		"mongodb://id:key@h/app?authMechanism=MONGODB-AWS":                                false,
		"mongodb://h/app?authMechanism=SCRAM-SHA-256":                                     false,
		"mongodb://h/app": false, "file:/tmp/MONGODB-AWS": false, "": false,
	} {
		for _, key := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
			if isCredential(key, "x", backend) != want {
				t.Errorf("%s with the backend %q is a credential: %t, want %t", key, backend, !want, want)
			}
		}
		if isCredential("AWS_REGION", "x", backend) {
			t.Error("AWS_REGION is a credential")
		}
	}
}

// The command's environment is without the credentials of this backend, unless --keep-env is given.
func TestEnvironmentWithoutAWSVariables(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "sEcReT")
	client, err := holdfast.Open(t.Context(), "mem:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown(context.WithoutCancel(t.Context())) })
	hold, err := client.TryLock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	const aws = "mongodb://h/app?authMechanism=MONGODB-AWS"
	for _, c := range []struct {
		backend string
		keep    bool
		want    bool
	}{{aws, false, false}, {aws, true, true}, {"mongodb://h/app", false, true}} {
		r := &runner{runCmd: &runCmd{KeepEnv: c.keep}, backend: c.backend}
		if got := slices.Contains(r.environment(held{lease: hold, first: hold}), "AWS_SECRET_ACCESS_KEY=sEcReT"); got != c.want {
			t.Errorf("with %s and --keep-env=%t the command inherits the key: %t", c.backend, c.keep, got)
		}
	}
}

// FuzzRedact checks that nothing of a password is left in a message, wherever its URL stands, and
// that a message without one stays as it is.
func FuzzRedact(f *testing.F) {
	f.Add("unexpected argument ", "mongodb", "user", "", "", "@h/db, sorry")
	f.Add("", "azblob", "", "a:b/c?d=", "#\n\xff", "")
	f.Add("\"", "MONGODB+srv", "%40", " ", "é", "@@")
	f.Fuzz(func(t *testing.T, before, scheme, user, start, end, after string) {
		const secret = "s3cr3t-0f-7h3-u53r"
		if strings.Contains(user, "@") {
			return // an @ in the name of the user ends it
		}
		message := before + scheme + "://" + user + ":" + start + secret + end + "@host" + after
		got := redact(message)
		if strings.Contains(got, secret) || redact(got) != got ||
			!strings.HasPrefix(got, redact(before)[:min(len(redact(before)), len(before))]) && secretPattern().FindString(before) == "" {
			t.Errorf("%q becomes %q", message, got)
		}
		if checkName(message) == nil || !isCredential(envBackend, message, "") {
			t.Errorf("%q is no secret", message)
		}
		if harmless := before + after; (checkName(harmless) == nil) != (redact(harmless) == harmless) {
			t.Errorf("%q becomes %q, as a name: %v", harmless, redact(harmless), checkName(harmless))
		}
	})
}

// explain repeats --backend in the commands that it shows, but no secret.
func TestExplainRepeatsNoSecret(t *testing.T) {
	store := "file:" + filepath.ToSlash(t.TempDir())
	client, err := holdfast.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Shutdown(context.Background()) }()
	if _, err := client.Lock(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	for flag, shown := range map[string]bool{"mongodb://db1/app": true, "mongodb://app:pw@db1/app": false} {
		var out strings.Builder
		a := &app{backend: store, backendFlag: flag, stdout: &out, log: messages.NewLog(io.Discard, false, false)}
		if err := (&explainCmd{Name: "job"}).Run(a); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, flag) != shown || !strings.Contains(text, "holdfast break") || strings.Contains(text, "pw") {
			t.Errorf("with --backend %s:\n%s", flag, text)
		}
	}
}
