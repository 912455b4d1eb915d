package env

import (
	"cmp"
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// Mode says where the backends run.
type Mode string

// The modes, as they are written in [ModeVariable].
const (
	// Containers: Docker containers with the images [MongoImage], [PostgresImage] and [AzuriteImage]. The default.
	Containers Mode = "containers"
	// Endpoints: the user's own backends, at [mongotest.EnvURI], [postgrestest.EnvURL] and [azuritetest.EnvURL]. The
	// default if one of them is set. No server is disturbed: tests that would do so are skipped,
	// and so are tests of a backend that is not named.
	Endpoints Mode = "endpoints"
	// Processes: local processes, found or fetched like those of the unit tests.
	Processes Mode = "process"
)

// Environment variables that choose the mode and the images.
const (
	ModeVariable         = "HOLDFAST_TEST_MODE"
	MongoImageVariable   = holdfastcontainers.MongoImageVariable
	AzuriteImageVariable = holdfastcontainers.AzuriteImageVariable

	PostgresImageVariable = holdfastcontainers.PostgresImageVariable
)

// MongoImage returns the image of mongod: that of the variable, or the official one.
func MongoImage() string {
	return cmp.Or(os.Getenv(MongoImageVariable), holdfastcontainers.DefaultMongoImage)
}

// PostgresImage returns the image of PostgreSQL: that of the variable, or the official one.
func PostgresImage() string {
	return cmp.Or(os.Getenv(PostgresImageVariable), holdfastcontainers.DefaultPostgresImage)
}

// AzuriteImage returns the image of Azurite: that of the variable, or the official one.
func AzuriteImage() string {
	return cmp.Or(os.Getenv(AzuriteImageVariable), holdfastcontainers.DefaultAzuriteImage)
}

// endpoint returns the value of a variable that names the user's own servers.
func endpoint(variable string) (string, error) {
	value := os.Getenv(variable)
	if value == "" {
		return "", fmt.Errorf("%w: %s is not set", ErrUnsupported, variable)
	}
	return value, nil
}

// chooseMode returns the mode that the variables select.
func chooseMode() (Mode, error) {
	own := os.Getenv(mongotest.EnvURI) != "" || os.Getenv(postgrestest.EnvURL) != "" || os.Getenv(azuritetest.EnvURL) != ""
	switch mode := Mode(os.Getenv(ModeVariable)); {
	case mode == "" && own:
		return Endpoints, nil
	case mode == "":
		return Containers, nil
	case mode == Endpoints && !own:
		return "", fmt.Errorf("%s is %s, but none of %s, %s and %s is set", ModeVariable, mode, mongotest.EnvURI, postgrestest.EnvURL,
			azuritetest.EnvURL)
	case mode == Containers || mode == Endpoints || mode == Processes:
		return mode, nil
	default:
		return "", fmt.Errorf("%s is %q; want %s, %s or %s", ModeVariable, mode, Containers, Endpoints, Processes)
	}
}
