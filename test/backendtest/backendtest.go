// Package backendtest opens a backend of each registered driver for a test, as the drivers say
// ([driver.Description.TestURL]).
package backendtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/internal/alldrivers" // for driver.Drivers
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/etcdtest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// servers start a server, unless the variable has one's URL, and return the URL of a part of it that only
// the test uses. A backend without an entry needs the variable.
var servers = map[string]func(tb testing.TB) string{
	mongotest.EnvURI: func(tb testing.TB) string {
		return mongotest.WithDatabase(mongotest.URI(tb), mongotest.Collection(tb).Database().Name())
	},
	azuritetest.EnvURL: func(tb testing.TB) string {
		service := azuritetest.Shared(tb)
		return service.URL(service.Fresh(tb))
	},
	etcdtest.EnvURL:       etcdtest.URL,
	postgrestest.EnvURL:   postgrestest.URL,
	kubernetestest.EnvURL: kubernetestest.URL,
	s3test.EnvURL:         s3test.URL,
	dynamodbtest.EnvURL:   dynamodbtest.URL,
}

// longOnly are the servers that only the long suite starts.
var longOnly = []string{etcdtest.EnvURL}

// Backends returns for each driver, by its main scheme, what makes the URL of a backend that only the test
// uses. It leaves out the drivers whose locks are shared by fewer processes than reach says, and in a short run those whose servers only
// the long suite starts.
func Backends(reach driver.Reach) map[string]func(tb testing.TB) string {
	all := map[string]func(testing.TB) string{}
	for _, d := range driver.Drivers() {
		left := testing.Short() && slices.Contains(longOnly, strings.TrimPrefix(d.TestURL, "$"))
		if d.Reach <= reach && !left {
			all[d.Schemes[0]] = func(tb testing.TB) string { tb.Helper(); return url(tb, d) }
		}
	}
	return all
}

func url(tb testing.TB, d driver.Description) string {
	tb.Helper()
	variable, server := strings.CutPrefix(d.TestURL, "$")
	switch {
	case d.TestURL == "":
		tb.Fatalf("the driver %s does not say how a test opens it: TestURL in its description is empty", d.Name)
	case !server:
		return strings.ReplaceAll(d.TestURL, "DIR", filepath.ToSlash(tb.TempDir()))
	case servers[variable] != nil:
		return servers[variable](tb)
	case os.Getenv(variable) == "":
		tb.Fatalf("tests of the driver %s need the URL of a server in %s", d.Name, variable)
	}
	return os.Getenv(variable)
}
