package backends

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
		if got := Redact("unexpected argument " + arg + ", sorry"); strings.Contains(got, "sEcReT") ||
			!strings.HasPrefix(got, "unexpected argument") {
			t.Errorf("%s: %s", arg, got)
		}
		if CheckName(arg) == nil {
			t.Errorf("%s is accepted as a name", arg)
		}
	}
	for _, arg := range []string{"job", "https://example.com/job", "team/job@host", "job:nightly@host", "a=b"} {
		if got := Redact(arg); got != arg {
			t.Errorf("%s: %s", arg, got)
		}
		if err := CheckName(arg); err != nil {
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
			if IsCredential(key, "x", backend) != want {
				t.Errorf("%s with the backend %q is a credential: %t, want %t", key, backend, !want, want)
			}
		}
		if IsCredential("AWS_REGION", "x", backend) {
			t.Error("AWS_REGION is a credential")
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
		got := Redact(message)
		if strings.Contains(got, secret) || Redact(got) != got ||
			!strings.HasPrefix(got, Redact(before)[:min(len(Redact(before)), len(before))]) && !MayHoldSecret(before) {
			t.Errorf("%q becomes %q", message, got)
		}
		if CheckName(message) == nil || !IsCredential(Variable, message, "") {
			t.Errorf("%q is no secret", message)
		}
		if harmless := before + after; (CheckName(harmless) == nil) != (Redact(harmless) == harmless) {
			t.Errorf("%q becomes %q, as a name: %v", harmless, Redact(harmless), CheckName(harmless))
		}
	})
}
