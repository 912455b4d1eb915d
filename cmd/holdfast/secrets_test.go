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
