package request

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"

	"github.com/holdfast-go/holdfast/driver"
)

// answerLimit is how long a service may take to begin its answer, and as long again to end it.
const answerLimit = 5 * time.Second

// Load returns the configuration that the SDK finds: in the environment, in the files of the AWS CLI, on the machine. An empty profile
// or region is the SDK's default.
func Load(ctx context.Context, profile, region string) (aws.Config, error) {
	// Requests for credentials have no time limit of their own, and the others wait for them.
	limited := awshttp.NewBuildableClient().WithTimeout(2 * answerLimit).
		WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = answerLimit })
	opts := []func(*config.LoadOptions) error{config.WithHTTPClient(limited),
		// The SDK has another client for those of a container or pod.
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = limited })}
	if profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(profile))
	}
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}
	found, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return aws.Config{}, errors.New("the configuration of AWS cannot be used: " + reason(err))
	}
	return found, nil
}

// reason is the text of an error of the SDK, in one line and without what may be a credential.
func reason(err error) string {
	var process *processcreds.ProviderError
	if errors.As(err, &process) { // it can have what the process has printed
		return "the credential_process of the profile has failed, or has printed no credential: run it by hand"
	}
	text := err.Error()
	var sent *url.Error
	if errors.As(err, &sent) {
		text = strings.ReplaceAll(text, sent.URL, "(address not shown)")
	}
	return strings.Join(strings.Fields(text), " ")
}

var regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// CheckRegion checks the name of a region, which becomes a part of a host's name and of signatures.
func CheckRegion(field, name string) error {
	if len(name) > 40 || !regionName.MatchString(name) {
		return driver.Invalid(field, driver.QuoteName(name), "the name of a region such as eu-central-1")
	}
	return nil
}

// Suffix is what AWS's host names of a region end with. Regions of other partitions need an endpoint.
func Suffix(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "amazonaws.com.cn"
	case strings.HasPrefix(region, "eusc-"):
		return "amazonaws.eu"
	}
	return "amazonaws.com"
}

// Endpoint is the address that the program or the user has configured for a service instead of AWS's, or empty. sdkID is the service's
// in the SDK, such as "S3": AWS_ENDPOINT_URL_S3, and services in ~/.aws/config, are for it alone.
func Endpoint(ctx context.Context, configured aws.Config, sdkID string) string {
	base := aws.ToString(configured.BaseEndpoint)
	if os.Getenv("AWS_ENDPOINT_URL") != "" && os.Getenv("AWS_ENDPOINT_URL_"+strings.ToUpper(sdkID)) == "" {
		return base
	}
	for _, source := range configured.ConfigSources {
		if s, is := source.(interface {
			GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error)
		}); is {
			if ignored, found, err := s.GetIgnoreConfiguredEndpoints(ctx); found && ignored && err == nil {
				return base
			}
		}
	}
	for _, source := range configured.ConfigSources {
		if s, is := source.(interface {
			GetServiceBaseEndpoint(context.Context, string) (string, bool, error)
		}); is {
			if at, found, err := s.GetServiceBaseEndpoint(ctx, sdkID); found && err == nil {
				return at
			}
		}
	}
	return base
}

// ParseEndpoint checks an endpoint. The error does not show it: it may have a password.
func ParseEndpoint(field, endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery ||
		strings.ContainsAny(endpoint, "# ") {
		return nil, driver.Invalid(field, "(not shown)", "an address such as https://s3.example.com, without a user and parameters")
	}
	// The default port is no part of the header Host, and so of the signature.
	if port := u.Port(); u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}
