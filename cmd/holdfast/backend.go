package main

import (
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// defaultBackend is a folder in the place that the system has for state of a user.
func defaultBackend() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
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
