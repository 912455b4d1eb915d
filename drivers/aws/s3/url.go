package s3

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// URL parameters of this driver.
const (
	paramEndpoint  = "endpoint"
	paramPathStyle = "pathStyle"
	paramProfile   = "profile"
	paramRegion    = "region"
)

var params = []string{paramEndpoint, driver.ParamHistory, paramPathStyle, paramProfile, paramRegion}

const form = "s3://BUCKET/PREFIX?region=REGION"

// place is what a URL says: where the locks are.
type place struct{ bucket, region, profile string }

// Open makes a Locker on the bucket of a URL such as s3://BUCKET/PREFIX?region=REGION, with the credentials that AWS's SDK finds. The
// other parameters are profile, for another one of ~/.aws/config, endpoint, for another store than AWS's, pathStyle ([WithPathStyle])
// and history ([WithHistory]).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	p, own, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	config, err := request.Load(ctx, p.profile, p.region)
	if err != nil {
		return nil, connectError(err)
	}
	return New(ctx, config, p.bucket, append(opts[:len(opts):len(opts)], own...)...)
}

// parseURL returns what a URL says.
func parseURL(rawURL string) (p place, own []Option, err error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return p, nil, err
	}
	u, query, err := driverutil.ParseURL(rawURL, form, params...)
	if err != nil {
		return p, nil, err
	}
	if u.User != nil || u.Opaque != "" || u.Port() != "" {
		return p, nil, driver.Invalid("URL", "with more than a bucket and a prefix", form+": credentials come from the environment, a profile "+
			"or the machine, and the address of another store from the parameter "+paramEndpoint)
	}
	if p.bucket = u.Host; checkBucket("URL bucket", p.bucket) != nil {
		return p, nil, checkBucket("URL bucket", p.bucket)
	}
	if prefix := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"); prefix != "" {
		if err := checkPrefix("URL prefix", prefix); err != nil {
			return p, nil, err
		}
		own = append(own, WithPrefix(prefix))
	}
	for name, values := range query {
		field, value := "URL parameter "+name, values[0]
		if len(values) > 1 || value == "" {
			return p, nil, driver.Invalid(field, "without one value", "given once, and not empty")
		}
		switch name {
		case paramEndpoint:
			own = append(own, func(c *settings) { c.endpoint = value })
			_, err = request.ParseEndpoint(field, value)
		case paramPathStyle:
			own = append(own, WithPathStyle(value == "true"))
			if value != "true" && value != "false" {
				err = driver.Invalid(field, driver.QuoteName(value), "true or false")
			}
		case paramProfile:
			p.profile, err = value, driver.ValidatePlace(field, value, "")
		case paramRegion:
			p.region, err = value, request.CheckRegion(field, value)
		default:
			var n int
			n, err = driver.HistoryParam(query)
			own = append(own, WithHistory(n))
		}
		if err != nil {
			return p, nil, err
		}
	}
	return p, own, nil
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]|\.[a-z0-9])*$`) // and 3 to 63 characters
	prefixName = regexp.MustCompile(`^[A-Za-z0-9_.-]*[A-Za-z0-9_-]$`)    // each part
)

// maxPrefix leaves room for a key: S3's have 1,024 bytes.
const maxPrefix = 500

func checkBucket(field, name string) error {
	switch {
	case strings.HasSuffix(name, "--x-s3"):
		return driver.Invalid(field, driver.QuoteName(name), "a general purpose bucket: directory buckets have another protocol")
	case len(name) < 3 || len(name) > 63 || !bucketName.MatchString(name) || strings.HasSuffix(name, "-"):
		return driver.Invalid(field, driver.QuoteName(name), "3 to 63 small letters, digits, dashes and dots, with a letter or a digit at "+
			"both ends")
	}
	return nil
}

// checkPrefix accepts what every store leaves as it is.
func checkPrefix(field, prefix string) error {
	if prefix == "" {
		return nil
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if len(prefix) > maxPrefix || !prefixName.MatchString(part) {
			return driver.Invalid(field, driver.QuoteName(prefix), fmt.Sprintf("at most %d letters, digits and any of -_./, without an empty "+
				"part or one that ends with a dot", maxPrefix))
		}
	}
	return nil
}
