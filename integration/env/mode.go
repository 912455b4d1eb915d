package env

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/internal/azuritetest"
	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// Mode is where the backends run.
type Mode string

// The modes, as the variable [ModeVariable] names them.
const (
	// Containers: Docker containers of the images that [MongoImage] and
	// [AzuriteImage] name. The default.
	Containers Mode = "containers"
	// Endpoints: the user's own, at [mongotest.EnvURI] and [azuritetest.EnvURL]. The
	// default if one of them is set. Servers are not disturbed; tests that would, and
	// tests of the backend that is not named, are skipped.
	Endpoints Mode = "endpoints"
	// Processes: servers on this machine, found or fetched as the unit tests do it.
	Processes Mode = "process"
)

// Variables that choose the mode and the images.
const (
	ModeVariable         = "HOLDFAST_TEST_MODE"
	MongoImageVariable   = "HOLDFAST_TEST_MONGO_IMAGE"
	AzuriteImageVariable = "HOLDFAST_TEST_AZURITE_IMAGE"
)

// MongoImage is the image of a mongod: the variable's, or the official one.
func MongoImage() string { return variable(MongoImageVariable, "mongo:6.0") }

// AzuriteImage is the image of Azurite: the variable's, or the official one.
func AzuriteImage() string {
	return variable(AzuriteImageVariable, "mcr.microsoft.com/azure-storage/azurite:3.37.0")
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// chooseMode reads the variables.
func chooseMode() (Mode, error) {
	own := os.Getenv(mongotest.EnvURI) != "" || os.Getenv(azuritetest.EnvURL) != ""
	switch mode := Mode(os.Getenv(ModeVariable)); {
	case mode == "" && own:
		return Endpoints, nil
	case mode == "":
		return Containers, nil
	case mode == Endpoints && !own:
		return "", fmt.Errorf("%s is %s, but neither %s nor %s is set", ModeVariable, mode, mongotest.EnvURI, azuritetest.EnvURL)
	case mode == Containers || mode == Endpoints || mode == Processes:
		return mode, nil
	default:
		return "", fmt.Errorf("%s is %q; it may be %s, %s or %s", ModeVariable, mode, Containers, Endpoints, Processes)
	}
}
