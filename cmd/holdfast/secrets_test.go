package main

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, arg := range []string{
		"mongodb://u:sEcReT@h/db", "mongodb+srv://u:sEc sEcReT@h", "mongodb://u:p/sEcReT@h?x=1", "azblob://a/c?sig=sEcReT", "MONGODB://sEcReT@h",
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=sEcReT==", "--password=sEcReT", "mongodb://u@h/?x=sEcReT",
		"mongodb://h/app?tlsCertificateKeyFile=/c.pem&tlsCertificateKeyFilePassword=sEcReT", "mongodb://h/app?proxyHost=x&proxyPassword=sEcReT",
		"mongodb://h/app?authMechanismProperties=AWS_SESSION_TOKEN:sEcReT", "mongodb://h/app?authMechanismProperties=aws_session_token%3AsEcReT",
	} {
		if got := redact("unexpected argument " + arg + ", sorry"); strings.Contains(got, "sEcReT") || !strings.HasPrefix(got, "unexpected argument") {
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
		if strings.Contains(got, secret) || redact(got) != got || !strings.HasPrefix(got, redact(before)[:min(len(redact(before)), len(before))]) && secretPattern.FindString(before) == "" {
			t.Errorf("%q becomes %q", message, got)
		}
		if checkName(message) == nil || !isCredential(envBackend, message) {
			t.Errorf("%q is no secret", message)
		}
		if harmless := before + after; (checkName(harmless) == nil) != (redact(harmless) == harmless) {
			t.Errorf("%q becomes %q, as a name: %v", harmless, redact(harmless), checkName(harmless))
		}
	})
}
