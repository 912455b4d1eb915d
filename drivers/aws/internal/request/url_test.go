package request

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

var form = Form{Text: "s3://BUCKET/PREFIX", Place: "bucket", Server: "store",
	Params: []string{ParamEndpoint, driver.ParamHistory, "own", ParamProfile, ParamRegion}}

func TestParse(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]URL{
		"s3://locks":           {Place: "locks", History: -1},
		"S3://Locks/a/b/":      {Place: "Locks", Prefix: "a/b", History: -1},
		"s3://locks/?region=r": {Place: "locks", Region: "r", History: -1},
		"s3://l?endpoint=https://h:1/x&history=0&profile=p%20q&own=1": {Place: "l", Endpoint: "https://h:1/x", Profile: "p q"},
	} {
		got, err := form.Parse(rawURL)
		if own := got.Params.Get("own"); err != nil || (own == "1") != strings.Contains(rawURL, "own") {
			t.Errorf("%s: %q, %v", rawURL, own, err)
		}
		if got.Params = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", rawURL, got, want)
		}
	}
}

// Each mistake has an error that names the field, and none shows what may be a secret.
func TestURLErrors(t *testing.T) {
	t.Parallel()
	const secret = "S3cr3t"
	const more = "with more than a bucket and a prefix is invalid: must be s3://BUCKET/PREFIX: credentials come from the environment, a " +
		"profile or the machine, and the address of another store from the parameter endpoint"
	for rawURL, want := range map[string]string{
		"s3://locks?regoin=a":                             "one of endpoint, history, own, profile, region",
		"s3://locks?" + secret + "%2F=1":                  "not shown",
		"s3://key:" + secret + "@locks":                   more,
		"s3://locks:9000":                                 more,
		"s3:locks":                                        more,
		"s3://locks?region=":                              "URL parameter region without one value",
		"s3://locks?own":                                  "URL parameter own without one value",
		"s3://locks?region=a&region=b":                    "region without one value",
		"s3://locks?region=EU":                            "such as eu-central-1",
		"s3://locks?region=-eu":                           "such as eu-central-1",
		"s3://locks?region=eu.evil.test%2F":               "such as eu-central-1",
		"s3://locks?endpoint=s3.example.com":              "URL parameter endpoint",
		"s3://locks?endpoint=ftp://h":                     "URL parameter endpoint",
		"s3://locks?endpoint=https://me:" + secret + "@h": "without a user",
		"s3://locks?endpoint=https://h/%3Fkey=" + secret:  "without a user and parameters",
		"s3://locks?endpoint=https://":                    "URL parameter endpoint",
		"s3://locks?profile=a%0A":                         "URL parameter profile",
		"s3://locks?history=33":                           "from 0 to 32",
		"s3://locks?history=all":                          "history",
		"s3://locks#x":                                    "with a #",
		"s3://locks ":                                     "white space",
		"s3://locks?region=%zz":                           "properly encoded",
		"s3://[":                                          "cannot be parsed",
	} {
		_, err := form.Parse(rawURL)
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", rawURL, err, want)
		}
	}
}

func TestDescribePlace(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]string{
		"//locks/a": "//locks/a", "//locks?region=eu-test-1&history=3&profile=ops": "//locks in eu-test-1 profile ops",
		"//locks?endpoint=http://127.0.0.1:9000": "//locks at http://127.0.0.1:9000",
	} {
		if got := DescribePlace(rest); got != want {
			t.Errorf("the place of %q is %q", rest, got)
		}
	}
}
