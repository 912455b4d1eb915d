// Package backends is about the URLs of backends: which one to use, how it is shown, what of it is secret, and what help texts
// say of the drivers.
package backends

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Variable is the environment variable that sets the backend.
const Variable = "HOLDFAST_BACKEND"

// localBackend stands for a folder of the user on this machine.
const localBackend = "file:"

// errNoBackend is returned where nobody is at a terminal. On each of many machines a local
// folder would hold a lock that the other machines do not see.
func errNoBackend() error {
	return errors.New("no backend is set: give --backend URL or set HOLDFAST_BACKEND, such as " + sharedExamples() +
		"; --backend " + localBackend + " chooses a folder that only this machine uses")
}

// errNoBackendNested is returned in a command that holdfast runs: it is to use the locks of
// its parent.
func errNoBackendNested() error {
	return fmt.Errorf("%w. This command runs under another holdfast run, which passes HOLDFAST_BACKEND on only if the URL holds no "+
		"password, or with --keep-env", errNoBackend())
}

// Choose returns the URL of the backend to use. Without a given one, a user at a
// terminal gets the local folder; the messages there name it. nested says that holdfast runs under another one.
func Choose(given string, interactive, nested bool) (string, error) {
	if given == "" {
		switch {
		case nested:
			return "", errNoBackendNested()
		case !interactive:
			return "", errNoBackend()
		}
		given = localBackend
	}
	if err := driver.ValidateURLEnds(given); err != nil {
		return "", errors.New("the backend's " + driver.ErrorText(err))
	}
	scheme, rest, found := strings.Cut(given, ":")
	if scheme = strings.ToLower(scheme); !found || strings.ContainsAny(scheme, "/@=;? ") {
		return "", errors.New("the backend's URL has no scheme: " + schemeRule()) // the value is not shown: it may be a secret
	}
	if _, known := driver.Describe(given); !known {
		if InFull[scheme] != "" {
			return "", fmt.Errorf("%s: is a backend of the full build only: go -C cmd/holdfast build -tags full", scheme)
		}
		rule := schemeRule()
		if meant := driver.SimilarScheme(scheme); meant != "" {
			rule += "; did you mean " + meant + "?"
		}
		return "", fmt.Errorf("the backend's URL has the unknown scheme %q: %s", Redact(scheme), rule)
	}
	if scheme+":" == localBackend && (rest == "" || rest == "//") {
		return LocalFolder()
	}
	return given, nil
}

// InFull are the schemes of the drivers that only the build with the tag full has, with their packages: the usual build fetches no
// modules for them.
var InFull = map[string]string{
	"dynamodb":   "github.com/holdfast-go/holdfast/drivers/aws/dynamodb",
	"kubernetes": "github.com/holdfast-go/holdfast/drivers/kubernetes",
	"mysql":      "github.com/holdfast-go/holdfast/drivers/mysql",
	"nats":       "github.com/holdfast-go/holdfast/drivers/nats",
	"redis":      "github.com/holdfast-go/holdfast/drivers/redis",
	"rediss":     "github.com/holdfast-go/holdfast/drivers/redis",
	"s3":         "github.com/holdfast-go/holdfast/drivers/aws/s3",
}

// schemeRule lists the schemes of backends that several processes can share.
func schemeRule() string {
	var shared []string
	for _, d := range Drivers() {
		shared = append(shared, d.Schemes...)
	}
	slices.Sort(shared)
	for i := range shared {
		shared[i] += ":"
	}
	return "must begin with " + join(shared, "or")
}

// ErrMemory refuses a backend of which [IsMemory] is true.
func ErrMemory(backend string) error {
	scheme, _, _ := strings.Cut(backend, ":")
	return errors.New("the backend " + strings.ToLower(scheme) + ": is the memory of one process: no other process could see the lock. Use " +
		localBackend + " for the processes of this machine")
}

// IsMemory reports whether a backend is the memory of this process.
func IsMemory(backend string) bool {
	d, _ := driver.Describe(backend)
	return d.Reach == driver.ReachProcess
}

// LocalFolder returns the URL of a folder where the system keeps state of a user.
func LocalFolder() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("cannot find your folder for state on this machine, give --backend file:/FOLDER: %w", err)
	}
	path := filepath.ToSlash(filepath.Join(dir, "holdfast", "locks"))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/Users/… is /C:/Users/… in a URL
	}
	u := &url.URL{Scheme: "file", OmitHost: true, Path: path}
	return strings.ReplaceAll(u.String(), "$", "%24"), nil // the driver refuses a literal $
}

func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		return os.UserCacheDir() // %LocalAppData%
	case "darwin", "ios":
		return os.UserConfigDir() // ~/Library/Application Support
	}
	// The XDG specification says that a relative path in this variable is ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

// Display returns a backend's URL for messages: the place of the locks, without
// user, password and parameters.
func Display(backend string) string {
	scheme, rest, _ := strings.Cut(backend, ":")
	if d, _ := driver.Describe(backend); d.Place != nil {
		rest = d.Place(rest)
	} else {
		// The first "@" ends the user and password, which may hold a "?". A further "@" before the query
		// means that the password holds an unescaped one. An "@" in the query has no meaning.
		if _, address, found := strings.Cut(rest, "@"); found {
			rest = address
		}
		rest, _, _ = strings.Cut(rest, "?")
		rest = "//" + strings.TrimPrefix(rest[strings.LastIndexByte(rest, '@')+1:], "//")
	}
	return Redact(strings.ToLower(scheme) + ":" + rest)
}
