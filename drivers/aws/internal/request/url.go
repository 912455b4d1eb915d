package request

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of every driver.
const (
	ParamEndpoint = "endpoint"
	ParamProfile  = "profile"
	ParamRegion   = "region"
)

// UnknownHost explains an error by a wrong region, if there is no such host of AWS. There may be no such proxy instead.
func UnknownHost(err error, host, region string) error {
	var unknown *net.DNSError
	if host == "" || !errors.As(err, &unknown) || !unknown.IsNotFound || !strings.HasSuffix("."+unknown.Name, "."+host) {
		return err
	}
	return fmt.Errorf("there is no host %s: is %s a region of AWS? Regions outside amazonaws.com need the parameter %s", host,
		driver.Quote(region), ParamEndpoint)
}

// Form is what the URLs of a driver look like.
type Form struct {
	Text   string // such as "s3://BUCKET/PREFIX?region=REGION"
	Place  string // what the URL names, such as "bucket"
	Server string // what another endpoint is that of, such as "store"
	Params []string
}

// URL is what a URL says.
type URL struct {
	Place, Prefix             string // for the driver to check; the prefix has no "/" at its ends
	Endpoint, Profile, Region string
	History                   int        // -1 without the parameter
	Params                    url.Values // each has one value, which is not empty
}

// Parse reads a URL.
func (f Form) Parse(rawURL string) (u URL, err error) {
	if err := driver.ValidateURLEnds(rawURL); err != nil {
		return u, err
	}
	parsed, params, err := driverutil.ParseURL(rawURL, f.Text, f.Params...)
	if err != nil {
		return u, err
	}
	if parsed.User != nil || parsed.Opaque != "" || parsed.Port() != "" {
		return u, driver.Invalid("URL", "with more than a "+f.Place+" and a prefix", f.Text+": credentials come from the environment, a profile "+
			"or the machine, and the address of another "+f.Server+" from the parameter "+ParamEndpoint)
	}
	u = URL{Place: parsed.Host, Prefix: strings.TrimSuffix(strings.TrimPrefix(parsed.Path, "/"), "/"), History: -1, Params: params}
	for name, values := range params {
		field, value := "URL parameter "+name, values[0]
		if len(values) > 1 || value == "" {
			return u, driver.Invalid(field, "without one value", "given once, and not empty")
		}
		switch name {
		case ParamEndpoint:
			u.Endpoint = value
			_, err = ParseEndpoint(field, value)
		case ParamProfile:
			u.Profile, err = value, driver.ValidatePlace(field, value, "")
		case ParamRegion:
			u.Region, err = value, CheckRegion(field, value)
		case driver.ParamHistory:
			u.History, err = driver.HistoryParam(params)
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// DescribePlace is the [driver.Description].Place of every driver.
func DescribePlace(rest string) string {
	return driverutil.Place(rest, driverutil.Part{Word: "in", Param: ParamRegion}, driverutil.Part{Word: "at", Param: ParamEndpoint},
		driverutil.Part{Word: "profile", Param: ParamProfile})
}
