package driver

import (
	"errors"
	"strings"
	"testing"
)

// withDrivers runs a test with other drivers than those that are registered. Nothing runs beside it.
func withDrivers(t *testing.T, all ...Description) {
	t.Helper()
	registry.Lock()
	before := registry.drivers
	registry.drivers = all
	registry.Unlock()
	t.Cleanup(func() {
		registry.Lock()
		defer registry.Unlock()
		registry.drivers = before
	})
}

func wantRefused(t *testing.T, rawURL, want string) {
	t.Helper()
	_, err := Open(t.Context(), rawURL)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("%q: got %v, want %q", rawURL, err, want)
	}
}

// The error of a program without a driver says how to import one.
func TestOpenWithoutADriver(t *testing.T) {
	withDrivers(t)
	const none = `those of imported drivers (none is imported; such as import _ "github.com/holdfast-go/holdfast/drivers/file")`
	wantRefused(t, "s3cr3t", none)
	wantRefused(t, "consul://u:s3cr3t@h", none)
	wantRefused(t, "mongodb://u:s3cr3t@h", `import _ "github.com/holdfast-go/holdfast/drivers/mongo"`)
}

// What people write in place of a URL's scheme leads to the one that they meant.
func TestSimilarSchemes(t *testing.T) {
	withDrivers(t, Description{Name: "memory", Schemes: []string{"mem"}})
	for rawURL, want := range map[string]string{
		"mongo://u:s3cr3t@h":  "Did you mean mongodb:?",
		"MongoDBs://u:s3cr3t": "Did you mean mongodb:?",
		"postgre://s3cr3t":    "Did you mean postgres:?",
		"memory:":             "Did you mean mem:?",
		"blob://s3cr3t":       "Did you mean azblob:?",
		"https://ACCOUNT.blob.core.windows.net/locks?sig=s3cr3t": "Did you mean azblob://ACCOUNT/CONTAINER?",
		"consul://s3cr3t":      "one of mem:; is the driver imported?",
		"db:s3cr3t":            "is the driver imported?",
		" mongodb://u:s3cr3t@": "with white space or an invisible character at an end",
	} {
		wantRefused(t, rawURL, want)
	}
	for _, scheme := range []string{"consul", "db", "", "e"} {
		if meant := SimilarScheme(scheme); meant != "" {
			t.Errorf("%s leads to %s", scheme, meant)
		}
	}
}
