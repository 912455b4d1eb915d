package main

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

// localBackend chooses the folder of the user on this machine.
const localBackend = "file:"

// errNoBackend is for programs: on each of many machines they would take a lock that
// the others do not see.
var errNoBackend = errors.New("no backend is set: give --backend URL or set HOLDFAST_BACKEND, such as mongodb://… or azblob://…; " +
	"--backend file: chooses a folder that only this machine uses")

// errNoBackendInside is for a command that holdfast runs: it uses its parent's locks.
var errNoBackendInside = fmt.Errorf("%w. This runs within a holdfast run, which passes HOLDFAST_BACKEND on only if it holds no password, or with --keep-env", errNoBackend)

// chooseBackend returns the URL that a command is to use. Without one a person at a
// terminal gets the local folder: its name is in the messages there.
func chooseBackend(given string, person bool) (string, error) {
	if given == "" {
		switch {
		case os.Getenv(envToken) != "":
			return "", errNoBackendInside
		case !person:
			return "", errNoBackend
		}
		given = localBackend
	}
	scheme, rest, found := strings.Cut(given, ":")
	if scheme = strings.ToLower(scheme); !found || strings.ContainsAny(scheme, "/@=;? ") {
		return "", errors.New("the backend's URL has no scheme: " + mustBe()) // what it is may be a secret
	}
	if !slices.Contains(driver.Schemes(), scheme) {
		return "", fmt.Errorf("the backend's URL has the unknown scheme %q: %s", withoutSecret(scheme), mustBe())
	}
	if scheme == "file" && (rest == "" || rest == "//") {
		return localFolder()
	}
	return given, nil
}

// mustBe lists the schemes that several processes can share.
func mustBe() string {
	shared := slices.DeleteFunc(driver.Schemes(), func(scheme string) bool { return scheme == "mem" })
	last := len(shared) - 1
	return "must begin with " + strings.Join(shared[:last], ":, ") + ": or " + shared[last] + ":"
}

var errMemory = errors.New("the backend mem: is the memory of one process: no other process could see the lock. Use file: for the processes of this machine")

// inMemory reports whether only this process would see the locks of a backend.
func inMemory(backend string) bool {
	scheme, _, _ := strings.Cut(backend, ":")
	return strings.EqualFold(scheme, "mem")
}

// localFolder is a folder in the place that the system has for state of a user.
func localFolder() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder of your own on this machine, give --backend file:/FOLDER: %w", err)
	}
	path := filepath.ToSlash(filepath.Join(dir, "holdfast", "locks"))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/Users/… is /C:/Users/… in a URL
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String(), nil
}

func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		return os.UserCacheDir() // %LocalAppData%
	case "darwin", "ios":
		return os.UserConfigDir() // ~/Library/Application Support
	}
	// A relative path in the variable is to be ignored, says the XDG specification.
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

// shownBackend is a backend's URL for messages: where the locks are, without user,
// password and settings.
func shownBackend(backend string) string {
	scheme, rest, _ := strings.Cut(backend, ":")
	switch scheme = strings.ToLower(scheme); scheme {
	case "file":
		if dir, err := url.PathUnescape(rest); err == nil && !strings.HasPrefix(dir, "/") {
			if dir, err = filepath.Abs(dir); err == nil { // where this is depends on who looks
				rest = filepath.ToSlash(dir)
			}
		}
	case "azblob":
		address, query, _ := strings.Cut(rest, "?")
		rest = address
		if values, err := url.ParseQuery(query); err == nil && values.Get("endpoint") != "" {
			rest += " at " + values.Get("endpoint")
		}
	default:
		// As the driver reads it: the first "@" ends the user and password, which may hold a
		// "?"; one in the query means nothing. A further one before the query is a mistake
		// in a password.
		if _, address, found := strings.Cut(rest, "@"); found {
			rest = address
		}
		rest, _, _ = strings.Cut(rest, "?")
		rest = "//" + strings.TrimPrefix(rest[strings.LastIndexByte(rest, '@')+1:], "//")
	}
	return withoutSecret(scheme + ":" + rest)
}
