package kubernetes

import (
	"context"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

// URL parameters of this driver.
const (
	paramContext    = "context"
	paramKubeconfig = "kubeconfig"
	paramPrefix     = "prefix"
)

var params = []string{paramContext, driver.ParamHistory, paramKubeconfig, paramPrefix}

const form = "kubernetes://NAMESPACE, or kubernetes: for the namespace of the pod or of the kubeconfig's context"

// place is what a URL says: where the locks are.
type place struct{ namespace, context, kubeconfig string }

// Open makes a Locker on the namespace of a URL such as kubernetes://NAMESPACE. Without a namespace it is that of the pod or of
// the kubeconfig's context. The parameters are kubeconfig and context, for another file and context than those that kubectl uses,
// prefix ([WithPrefix]) and history ([WithHistory]).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Locker, error) {
	p, own, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	config, namespace, err := p.load()
	if err != nil {
		return nil, connectError(err)
	}
	return New(ctx, config, namespace, append(opts[:len(opts):len(opts)], own...)...)
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
	if u.User != nil || u.Opaque != "" || strings.Trim(u.Path, "/") != "" || u.Port() != "" {
		return p, nil, driver.Invalid("URL", "with more than a namespace", form+": the API server and the credential come from the kubeconfig")
	}
	if p.namespace = u.Host; p.namespace != "" {
		if err := checkNamespace("URL namespace", p.namespace); err != nil {
			return p, nil, err
		}
	}
	for name, values := range query {
		field, value := "URL parameter "+name, values[0]
		if len(values) > 1 || value == "" {
			return p, nil, driver.Invalid(field, "without one value", "given once, and not empty")
		}
		switch name {
		case paramContext:
			p.context, err = value, driver.ValidatePlace(field, value, "")
		case paramKubeconfig:
			p.kubeconfig, err = value, checkFile(field, value)
		case paramPrefix:
			own, err = append(own, WithPrefix(value)), checkPrefix(field, value)
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

func checkNamespace(field, name string) error {
	if !isLabel(name, 63) {
		return driver.Invalid(field, driver.QuoteName(name), "1 to 63 small letters, digits and dashes, and no dash at an end")
	}
	return nil
}

func checkPrefix(field, prefix string) error {
	if len(prefix) > 100 || prefix != "" && !isSubdomain(prefix+"a") {
		return driver.Invalid(field, driver.QuoteName(prefix), "the beginning of names of Leases: at most 100 small letters, digits, "+
			"dashes and dots, such as team-a-")
	}
	return nil
}

// checkFile refuses what no shell has expanded.
func checkFile(field, file string) error {
	if strings.HasPrefix(file, "~") || strings.Contains(file, "$") {
		return driver.Invalid(field, "with a ~ or a $", "the path itself: no shell expands it there")
	}
	return driver.ValidateFolder(field, strings.ReplaceAll(file, `\`, "/"))
}
