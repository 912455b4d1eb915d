package dynamodb

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
	paramEndpoint = "endpoint"
	paramProfile  = "profile"
	paramRegion   = "region"
)

var params = []string{paramEndpoint, driver.ParamHistory, paramProfile, paramRegion}

const form = "dynamodb://TABLE/PREFIX?region=REGION"

// place is what a URL says: where the locks are.
type place struct{ table, region, profile string }

// Open makes a Locker on the table of a URL such as dynamodb://TABLE/PREFIX?region=REGION, with the credentials that AWS's SDK finds. The
// table is made if there is none and the URL names the region: else each machine could make one in its own.
//
// Other parameters are profile, for another one of ~/.aws/config, endpoint, for another server than AWS's, and history ([WithHistory]).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	p, own, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	config, err := request.Load(ctx, p.profile, p.region)
	if err != nil {
		return nil, connectError(err)
	}
	own = append(own, func(c *settings) { c.elsewhere = p.region == "" && c.endpoint == "" })
	return New(ctx, config, p.table, append(opts[:len(opts):len(opts)], own...)...)
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
		return p, nil, driver.Invalid("URL", "with more than a table and a prefix", form+": credentials come from the environment, a profile "+
			"or the machine, and the address of another server from the parameter "+paramEndpoint)
	}
	if p.table = u.Host; checkTable("URL table", p.table) != nil {
		return p, nil, checkTable("URL table", p.table)
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
	tableName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
)

// maxPrefix leaves room for a key: DynamoDB's have 2,048 bytes.
const maxPrefix = 500

func checkTable(field, name string) error {
	if !tableName.MatchString(name) {
		return driver.Invalid(field, driver.QuoteName(name), "3 to 255 letters, digits and any of -_.: the name of a table, not its ARN")
	}
	return nil
}

func checkPrefix(field, prefix string) error {
	if prefix != "" && (len(prefix) > maxPrefix || !prefixName.MatchString(prefix)) {
		return driver.Invalid(field, driver.QuoteName(prefix), fmt.Sprintf("at most %d letters, digits and any of -_./, without an empty part",
			maxPrefix))
	}
	return nil
}
