package s3

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

const backend = "s3"

type settings struct {
	prefix    string
	history   int
	endpoint  string // of the URL; else that of the configuration
	pathStyle *bool
	// rounds is how often Open races conditional writes. A negative number is for a Locker that only reads.
	rounds int
	// elapsed is the clock to which that of the store is compared; nil is the process's.
	elapsed func() time.Duration
	// wrap, if not nil, makes the store of a test fail. sent, if not nil, is called for each request.
	wrap func(cas.Store) cas.Store
	sent func()
}

// Option sets up a Locker.
type Option func(*settings)

// WithPrefix sets the folder of the objects in the bucket, such as "team-a/locks". The default is none. Locks with different prefixes
// have nothing to do with each other.
func WithPrefix(prefix string) Option { return func(c *settings) { c.prefix = prefix } }

// WithHistory sets how many past holders are kept with a lock: 0 to [driver.MaxHistory]. The default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

// WithPathStyle sets whether the bucket is a part of the path, and not of the host's name. The default is true with an endpoint and for
// a bucket with a dot in its name, and else false.
func WithPathStyle(yes bool) Option { return func(c *settings) { c.pathStyle = &yes } }

func onlyReads(c *settings) { c.rounds = -1 }

// Locker is a [driver.Locker] that keeps locks in objects. [cas.Locker] describes its methods.
type Locker struct {
	*cas.Locker
	store *store
}

// New makes a Locker with a program's own configuration, on a bucket. Of the configuration it uses Region, Credentials, HTTPClient and
// the endpoint, and changes nothing in it: each request is made once, with a time limit of 5 s. It tries a few conditional writes; see
// [cas.Open].
func New(ctx context.Context, config aws.Config, bucket string, opts ...Option) (*Locker, error) {
	c := settings{history: driver.DefaultHistory}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return nil, err
	}
	if err := checkBucket("bucket", bucket); err != nil {
		return nil, err
	}
	if err := checkPrefix("prefix", c.prefix); err != nil {
		return nil, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return nil, err
	}
	s, err := newStore(ctx, config, bucket, c)
	if err != nil {
		return nil, connectError(err)
	}
	var used cas.Store = s
	if c.wrap != nil {
		used = c.wrap(s)
	}
	inner, err := cas.Open(ctx, used, s.config(c))
	if err != nil {
		s.calls.Close()
		return nil, err
	}
	return &Locker{inner, s}, nil
}

// newStore finds out where the bucket is.
func newStore(ctx context.Context, config aws.Config, bucket string, c settings) (*store, error) {
	s := &store{bucket: bucket, region: config.Region}
	if s.prefix = c.prefix; s.prefix != "" {
		s.prefix += "/"
	}
	field, endpoint := "URL parameter "+request.ParamEndpoint, c.endpoint
	if endpoint == "" {
		field, endpoint = "endpoint of the configuration", request.Endpoint(ctx, config, "S3")
	}
	pathStyle := endpoint != "" || strings.Contains(bucket, ".") // the certificate of AWS is for one label
	if c.pathStyle != nil {
		pathStyle = *c.pathStyle
	}
	switch {
	case s.region == "" && endpoint == "":
		return nil, driver.Invalid("region", "not set", "that of the bucket: name it in the URL parameter "+request.ParamRegion+
			", or in AWS_REGION")
	case s.region == "":
		s.region = "us-east-1" // what stores with one region expect
	}
	if err := request.CheckRegion("region", s.region); err != nil {
		return nil, err
	}
	if endpoint == "" {
		s.host = "s3." + s.region + "." + request.Suffix(s.region)
		endpoint = "https://" + s.host
	}
	at, err := request.ParseEndpoint(field, endpoint)
	if err != nil {
		return nil, err
	}
	s.at = address(at, bucket, pathStyle)
	s.calls, err = request.New(config, "s3", s.region, httpstore.NewClocks(c.elapsed), c.sent)
	return s, err
}

// address is the URL of a bucket.
func address(endpoint *url.URL, bucket string, pathStyle bool) string {
	at := *endpoint
	if pathStyle {
		at.Path += "/" + bucket
	} else {
		at.Host = bucket + "." + at.Host
	}
	return at.String()
}

// config describes the store. S3 answers when the object is stored, durably.
func (s *store) config(c settings) cas.Config {
	return cas.Config{
		Info: driver.Info{Backend: backend, Expiry: driver.ByServer, Failover: driver.GrantsSurvive, History: c.history,
			Limits: driver.Limits{MinTTL: 5 * time.Second, TTLNote: "the store's clock has steps of a second"}},
		ClockStep:   httpstore.MaxDateAge,
		Close:       func(context.Context) error { s.calls.Close(); return nil },
		ProbeRounds: c.rounds,
	}
}

// Capabilities are those of the [cas.Locker], with a Checker of its own.
func (l *Locker) Capabilities() driver.Capabilities {
	c := l.Locker.Capabilities()
	c.Checker = l
	return c
}
