package testservers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is a server program, or a folder of programs.
type Program struct {
	name, advice string // for errors
	// own returns the path of the one that the user chooses, or "".
	own func() (string, error)
	// cached returns what the cache has, and the program's path in it.
	cached func() (_ cached, inside string)
	// canFetch, if not nil, reports whether it can be fetched for this system. Most can be for linux/amd64 alone.
	canFetch func() bool
	// system returns the path of the one that the system provides, or "".
	system func() string
}

// named is the own program whose path a variable has.
func named(variable string) func() (string, error) {
	return func() (string, error) {
		path := os.Getenv(variable)
		if path == "" {
			return "", nil
		}
		return filepath.Abs(path)
	}
}

// Path returns the path of the one that the user chooses, else of the one in the cache, into which it is fetched if it is missing.
// Where it cannot be fetched, it is the one that the system provides.
func (p *Program) Path(ctx context.Context) (string, error) {
	if path, err := p.own(); path != "" || err != nil {
		return path, err
	}
	path, err := p.fetched(ctx)
	if err == nil {
		return path, nil
	}
	if installed := p.system(); installed != "" {
		return installed, nil
	}
	return "", fmt.Errorf("no %s: %w; %s", p.name, err, p.advice)
}

func (p *Program) fetched(ctx context.Context) (string, error) {
	c, inside := p.cached()
	if !c.isCached() && !p.CanFetch() {
		return "", fmt.Errorf("%s cannot be fetched for this system, %s/%s", p.name, runtime.GOOS, runtime.GOARCH)
	}
	path, err := c.ensure(ctx)
	return filepath.Join(path, filepath.FromSlash(inside)), err
}

// CanFetch reports whether the program can be fetched for this system.
func (p *Program) CanFetch() bool {
	if p.canFetch != nil {
		return p.canFetch()
	}
	return runtime.GOOS == "linux" && runtime.GOARCH == "amd64"
}

// IsOwn reports whether the user chooses the program. Then none is fetched.
func (p *Program) IsOwn() bool { path, err := p.own(); return path != "" || err != nil }

// IsInstalled reports whether there is a program without fetching one.
func (p *Program) IsInstalled() bool {
	c, _ := p.cached()
	return p.IsOwn() || c.isCached() || !p.CanFetch() && p.system() != ""
}

// folder returns the folder in the cache that a path is in, or "" if it is in none.
func (p *Program) folder(path string) string {
	c, _ := p.cached()
	folder, err := c.path()
	if err != nil || !strings.HasPrefix(path, folder+string(filepath.Separator)) {
		return ""
	}
	return folder
}
