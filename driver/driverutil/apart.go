package driverutil

import (
	"net/url"
	"strings"
)

// WithParam returns a URL in which a parameter has a value. The rest stays as it is.
func WithParam(rawURL, name, value string) string {
	base, query, _ := strings.Cut(rawURL, "?")
	kept := []string{name + "=" + url.QueryEscape(value)}
	for pair := range strings.SplitSeq(query, "&") {
		if key, _, _ := strings.Cut(pair, "="); key != name && pair != "" {
			kept = append(kept, pair)
		}
	}
	return base + "?" + strings.Join(kept, "&")
}

// Below returns a URL with another element at the end of its path. The parameters stay as they are.
func Below(rawURL, element string) string {
	base, query, found := strings.Cut(rawURL, "?")
	base = strings.TrimRight(base, "/") + "/" + element
	if found {
		base += "?" + query
	}
	return base
}
