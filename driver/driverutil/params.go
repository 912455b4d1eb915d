package driverutil

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Param is a parameter of a URL.
type Param struct{ Name, Value string }

// TakeParams takes the parameters with these names from the query of a URL that an SDK reads, too. rest has the others, as they
// are. A value that is empty or malformed is a [*driver.InvalidError].
func TakeParams(query string, names []string) (taken []Param, rest string, err error) {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(pair, "=")
		if !slices.Contains(names, name) {
			if pair != "" {
				kept = append(kept, pair)
			}
			continue
		}
		value, err := url.QueryUnescape(escaped)
		if err != nil || value == "" || strings.ContainsRune(value, 0) {
			return nil, "", driver.Invalid("URL parameter "+name, "without a valid value", "percent-encoded and not empty")
		}
		taken = append(taken, Param{name, value})
	}
	return taken, strings.Join(kept, "&"), nil
}

// Duration reads a duration. The error is a [*driver.InvalidError] that names the parameter.
func (p Param) Duration() (time.Duration, error) {
	d, err := time.ParseDuration(p.Value)
	if err != nil {
		return 0, driver.Invalid("URL parameter "+p.Name, fmt.Sprintf("%.40q", p.Value), "a duration such as 10s or 24h")
	}
	return d, nil
}

// History reads a number of past holders; see [driver.ParamHistory].
func (p Param) History() (int, error) {
	return driver.HistoryParam(url.Values{driver.ParamHistory: {p.Value}})
}
