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

// The name of a lock can be the URL of what it protects, with an "@", unless a password may stand before that.
func TestNameThatIsAURL(t *testing.T) {
	for name, want := range map[string]bool{
		"https://example.com/@scope/package": true, "https://example.com:8443/a@b": true, "https://joe@example.com/job": true,
		"git+ssh://git@example.com/a.git": true, "https://example.com?to=joe@example.com": true,
		"https://joe:pw@example.com/job": false, "https://joe:p/w@example.com": false, "https://example.com/?u=mongodb://a:b@h": false,
		"https://example.com/@x?password=pw": false, "mongodb://joe@h/app": false, "postgres://h/@x": false,
	} {
		if err := CheckName(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command inherits the URL of a backend without a password, so that a holdfast in it uses the same locks.
func TestBackendWithoutPasswordIsInherited(t *testing.T) {
	for url, want := range map[string]bool{
		"postgres://joe@h/app": true, "postgres://joe%40corp@h/app?sslmode=require": true, "mongodb+srv://joe@h/app": true, "file:/x@y": true,
		"postgres://joe:@h/app": false, "postgres://joe:pw@h/app": false, "postgres://joe%3apw@h/app": false, "postgres://joe@pw@h/app": false,
		"postgres://joe@h/app?password=pw": false, "postgres://joe/pw@h/app": false, "azblob://a/c?sig=pw": false, "nonsense://joe@h": false,
	} {
		if IsCredential(Variable, url, "") == want {
			t.Errorf("%s is inherited: %t, want %t", url, !want, want)
		}
	}
}

// Azure's variables are the backend's credentials if the locks are on Azure, and otherwise those of the command.
func TestAzureVariables(t *testing.T) {
	for backend, want := range map[string]bool{"azblob://account/locks": true, "mongodb://h/app": false, "file:/azblob": false} {
		for _, key := range []string{"AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET"} {
			if IsCredential(key, "x", backend) != want {
				t.Errorf("%s with the backend %q is a credential: %t, want %t", key, backend, !want, want)
			}
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
		endsBefore := strings.ContainsAny(start, "/?#") && CheckName(message) == nil // the "@" is in the path of another URL
		if CheckName(message) == nil && !endsBefore || !IsCredential(Variable, message, "") {
			t.Errorf("%q is no secret", message)
		}
		if harmless := before + after; CheckName(harmless) != nil && Redact(harmless) == harmless {
			t.Errorf("%q becomes %q, as a name: %v", harmless, Redact(harmless), CheckName(harmless))
		}
	})
}
