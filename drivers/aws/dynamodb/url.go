package dynamodb

import (
	"cmp"
	"context"
	"fmt"
	"regexp"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

var form = request.Form{Text: "dynamodb://TABLE/PREFIX?region=REGION", Place: "table", Server: "server",
	Params: []string{request.ParamEndpoint, driver.ParamHistory, request.ParamProfile, request.ParamRegion}}

// Open makes a Locker on the table of a URL such as dynamodb://TABLE/PREFIX?region=REGION, with the credentials that AWS's SDK finds. The
// table is made if there is none and the URL names the region or an endpoint: otherwise each machine could make one in its own region.
//
// Other parameters are profile, for another one of ~/.aws/config, endpoint, for another server than AWS's, and history ([WithHistory]).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	u, own, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	config, err := request.Load(ctx, u.Profile, u.Region)
	if err != nil {
		return nil, connectError(err)
	}
	own = append(own, func(c *settings) { c.elsewhere = u.Region == "" && c.endpoint == "" })
	return New(ctx, config, u.Place, append(opts[:len(opts):len(opts)], own...)...)
}

// parse reads a URL.
func parse(rawURL string) (u request.URL, own []Option, err error) {
	if u, err = form.Parse(rawURL); err != nil {
		return u, nil, err
	}
	if err := dynamo.CheckName("URL table", u.Place); err != nil {
		return u, nil, err
	}
	if err := checkPrefix("URL prefix", u.Prefix); err != nil {
		return u, nil, err
	}
	own = append(own, func(c *settings) {
		c.prefix, c.endpoint = cmp.Or(u.Prefix, c.prefix), u.Endpoint
		if u.History >= 0 {
			c.history = u.History
		}
	})
	return u, own, nil
}

var prefixName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)

// maxPrefix leaves room for a key: DynamoDB's have 2,048 bytes.
const maxPrefix = 500

func checkPrefix(field, prefix string) error {
	if prefix != "" && (len(prefix) > maxPrefix || !prefixName.MatchString(prefix)) {
		return driver.Invalid(field, driver.QuoteName(prefix), fmt.Sprintf("at most %d letters, digits and any of -_./, without an empty part",
			maxPrefix))
	}
	return nil
}
