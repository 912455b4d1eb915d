package s3

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

const paramPathStyle = "pathStyle"

var form = request.Form{Text: "s3://BUCKET/PREFIX?region=REGION", Place: "bucket", Server: "store",
	Params: []string{request.ParamEndpoint, driver.ParamHistory, paramPathStyle, request.ParamProfile, request.ParamRegion}}

// Open makes a Locker on the bucket of a URL such as s3://BUCKET/PREFIX?region=REGION, with the credentials that AWS's SDK finds. The
// other parameters are profile, for another one of ~/.aws/config, endpoint, for another store than AWS's, pathStyle ([WithPathStyle])
// and history ([WithHistory]).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	u, own, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	config, err := request.Load(ctx, u.Profile, u.Region)
	if err != nil {
		return nil, connectError(err)
	}
	return New(ctx, config, u.Place, append(opts[:len(opts):len(opts)], own...)...)
}

// parse reads a URL.
func parse(rawURL string) (u request.URL, own []Option, err error) {
	if u, err = form.Parse(rawURL); err != nil {
		return u, nil, err
	}
	if err := checkBucket("URL bucket", u.Place); err != nil {
		return u, nil, err
	}
	if err := checkPrefix("URL prefix", u.Prefix); err != nil {
		return u, nil, err
	}
	switch value := u.Params.Get(paramPathStyle); value {
	case "":
	case "true", "false":
		own = append(own, WithPathStyle(value == "true"))
	default:
		return u, nil, driver.Invalid("URL parameter "+paramPathStyle, driver.QuoteName(value), "true or false")
	}
	own = append(own, func(c *settings) {
		c.prefix, c.endpoint = cmp.Or(u.Prefix, c.prefix), u.Endpoint
		if u.History >= 0 {
			c.history = u.History
		}
	})
	return u, own, nil
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
