package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// busybox adds a shell and the small programs that entry points, health checks and
// testcontainers' probes run.
func (t *tree) busybox(ctx context.Context) error {
	source, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w; install busybox-static", err)
	}
	if libraries, err := sharedLibraries(ctx, source); err != nil || len(libraries) > 0 {
		return errors.Join(err, errors.New(source+" is not linked statically; install busybox-static"))
	}
	list, err := runCommand(ctx, source, "--list")
	if err != nil {
		return err
	}
	t.file("bin/busybox", source, 0o755)
	for applet := range strings.Lines(list) {
		if applet = strings.TrimSpace(applet); applet != "busybox" && applet != "" {
			t.link("bin/"+applet, "busybox")
		}
	}
	t.link("usr/bin/env", "/bin/busybox")
	return nil
}

// program adds a program of this machine and its shared libraries.
func (t *tree) program(ctx context.Context, name, source string) error {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return err
	}
	libraries, err := sharedLibraries(ctx, source)
	if err != nil {
		return err
	}
	t.file(name, source, 0o755)
	for _, library := range libraries {
		source, err := filepath.EvalSymlinks(library)
		if err != nil {
			return err
		}
		t.file(strings.TrimPrefix(library, "/"), source, 0o755)
	}
	return nil
}

// folder adds a folder with programs and libraries, and the libraries of this machine that its programs need.
func (t *tree) folder(ctx context.Context, name, folder string) error {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		within, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		t.file(name+"/"+filepath.ToSlash(within), path, info.Mode().Perm()|0o444)
		if filepath.Base(filepath.Dir(path)) != "bin" {
			return nil
		}
		libraries, err := sharedLibraries(ctx, path)
		if err != nil {
			return err
		}
		for _, library := range libraries {
			source, err := filepath.EvalSymlinks(library)
			if err != nil {
				return err
			}
			if !strings.HasPrefix(source, folder+string(filepath.Separator)) {
				t.file(strings.TrimPrefix(library, "/"), source, 0o755)
			}
		}
		return nil
	})
}

// sharedLibraries lists the shared libraries of a program, including the loader.
func sharedLibraries(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("%s: %s", program, strings.TrimSpace(line))
		}
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				found = append(found, field)
			}
		}
	}
	return found, nil
}

// goProgram builds and adds a static Go program. pkg is its package's path, relative to the
// folder dir of the repository.
func (t *tree) goProgram(ctx context.Context, name, dir, pkg string) error {
	root, err := testservers.ModuleRoot()
	if err != nil {
		return err
	}
	out := filepath.Join(root, ".cache", "images", filepath.Base(name))
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, pkg)
	build.Dir = filepath.Join(root, dir)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, output)
	}
	t.file(name, out, 0o755)
	return nil
}

func runCommand(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(out), nil
}
