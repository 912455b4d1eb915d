package backends

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Every secret of a URL is known, wherever it stands in it: a driver lists the names of parameters.
func TestSecretValues(t *testing.T) {
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey=sEcReT==;EndpointSuffix=x")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=sEcReT%3D&se=2")
	for backend, want := range map[string][]string{
		"mongodb://joe:p%40ss@a:1,b:2/app?x=y":                                                  {"p%40ss", "p@ss"},
		"postgres://joe:pa%zz@h/app":                                                            {"pa%zz"}, // no valid URL
		"postgres://joe@h/app?sslmode=require&sslPassword=p%20s":                                {"p%20s", "p s", "p+s"},
		"postgres://joe@h/app?listen=postgres%3A%2F%2Fx%3Ap%2540s%40h2%2Fa":                     {"postgres://x:p%40s@h2/a", "p%40s", "p@s"},
		"postgres://joe@h/app?password=%22q%5C":                                                 {`"q\`, `\"q\\`},
		"mongodb://h/app?tlsCertificateKeyFilePassword=one&proxyPassword=two":                   {"one", "two"},
		"mongodb://h/app?authMechanismProperties=SERVICE_NAME:x%2CAWS_SESSION_TOKEN%3Atok%2Fen": {"tok/en"},
		"azblob://account/locks":                                                                {"sEcReT==", "sEcReT%3D", "sEcReT="},
	} {
		got := SecretValues(backend)
		all := " " + strings.Join(got, " ") + " "
		for _, secret := range want {
			if !strings.Contains(all, " "+secret+" ") {
				t.Errorf("%s: %q lacks %q", backend, got, secret)
			}
		}
		for _, harmless := range []string{"joe", "h", "y", "require", "x", "app", "SERVICE_NAME", "a", "1", "2", "account"} {
			if strings.Contains(all, " "+harmless+" ") {
				t.Errorf("%s: %q has %q", backend, got, harmless)
			}
		}
	}
	if got := SecretValues("mongodb://joe@h/app?replicaSet=rs0"); len(got) > 0 {
		t.Errorf("a URL without a secret: %q", got)
	}
}

func TestHideSecrets(t *testing.T) {
	secrets := SecretValues("postgres://joe:p%40ssw0rd@h/app?sslpassword=app")
	for text, want := range map[string]string{
		`password "p@ssw0rd" of joe`:    `password "…" of joe`,
		"at joe:p%40ssw0rd@h":           "at joe:…@h",
		"the application of app failed": "the application of … failed",
	} {
		if got := HideSecrets(text, secrets); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	err := WithoutSecrets(fmt.Errorf("login with p@ssw0rd: %w", driver.ErrDenied), secrets)
	if !errors.Is(err, driver.ErrDenied) || !strings.HasPrefix(err.Error(), "login with …: ") || WithoutSecrets(nil, secrets) != nil {
		t.Error(err)
	}
}
