package file

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func TestURL(t *testing.T) {
	for url, want := range map[string]string{
		"file:/var/lib/holdfast":            "/var/lib/holdfast",
		"file:///var/lib/holdfast":          "/var/lib/holdfast",
		"file://localhost/var/lib/holdfast": "/var/lib/holdfast",
		"file:.":                            ".",
		"file:/a%24HOME":                    "/a$HOME",
		"file:./locks":                      "./locks",
		"file:../a%20b":                     "../a b",
		"file:./~user":                      "./~user",
		"file:/x/~user":                     "/x/~user",
		"file:/a%3Fb%23c%25":                "/a?b#c%",
		"FILE:/x":                           "/x",
	} {
		if got, opts, err := parseURL(url); err != nil || got != filepath.FromSlash(want) || len(opts) > 0 {
			t.Errorf("%s: folder %q, error %v; want %q", url, got, err, want)
		}
	}
	for _, url := range []string{"file:", "file://", "file://host/locks", "file://me:secret@localhost/x", "file:/x?mode=1", "file:/x#y",
		"file:/x%zz", "file:x%zz", "file:/x?a=%zz", "file:/a%00b",
		"file:locks", "file:a/../b", "file:.hidden", "file:$HOME/x", "file:./$HOME", "file:/var/$X", "file://localhost/$X", "file:~", "file:~/x",
		"file:~user/x", "file:/x?retention=", "file:/x?retention=1", "file:/x?retention=%zz", "file:/x?Retention=2h"} {
		if got, _, err := parseURL(url); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: folder %q, error %v; want ErrInvalid", url, got, err)
		}
	}
	dir, opts, err := parseURL("file:/x?retention=90m")
	var c settings
	for _, opt := range opts {
		opt(&c)
	}
	if err != nil || dir != filepath.FromSlash("/x") || c.retention != 90*time.Minute {
		t.Errorf("folder %q, retention %v, error %v", dir, c.retention, err)
	}
	for _, retention := range []string{"59m59s", "30m", "0s", "-24h"} {
		_, err := driver.Open(t.Context(), "file:"+filepath.ToSlash(t.TempDir())+"?retention="+retention)
		want := "URL parameter retention " + retention + " is invalid: must be at least 1h"
		if !errors.Is(err, driver.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err = New(t.TempDir(), WithRetention(time.Minute))
	if want := "retention 1m is invalid: must be at least 1h"; !errors.Is(err, driver.ErrInvalid) || !strings.HasSuffix(err.Error(), want) ||
		strings.Contains(err.Error(), "URL") {
		t.Errorf("error %v, want %q", err, want)
	}
	_, opts, err = parseURL("file:/x?history=3")
	for _, opt := range opts {
		opt(&c)
	}
	if err != nil || c.history != 3 {
		t.Errorf("history %d, error %v", c.history, err)
	}
	if _, _, err := parseURL("file:/x?history=33"); !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "URL parameter history 33") {
		t.Errorf("error %v", err)
	}
	if runtime.GOOS == "windows" {
		if got, _, err := parseURL("file:///C:/locks"); err != nil || got != `C:\locks` {
			t.Errorf("folder %q, error %v", got, err)
		}
	}
}

// The folder stays the same when the program changes its working directory.
func TestRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	l := mustNew(t, "locks")
	t.Chdir(t.TempDir())
	mustAcquire(t, l, request("first"))
	if _, err := os.Stat("locks"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a second folder: %v", err)
	}
}

// A folder with a typo in its name would be another folder, with other locks.
func TestTyposMakeNoOtherFolder(t *testing.T) {
	dir := t.TempDir()
	for _, typo := range []string{"\n", "\r\n", "\t", " ", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x7f", "\x85", " /x"} {
		for what, open := range map[string]func() (driver.Locker, error){
			"escaped": func() (driver.Locker, error) {
				return driver.Open(t.Context(), "file:"+filepath.ToSlash(dir)+"/a"+url.PathEscape(typo))
			},
			"literal": func() (driver.Locker, error) {
				return driver.Open(t.Context(), "file:"+filepath.ToSlash(dir)+"/a"+typo)
			},
			"New": func() (driver.Locker, error) {
				l, err := New(filepath.Join(dir, "a"+typo))
				return l, err
			},
		} {
			l, err := open()
			if err == nil {
				_ = l.Close(t.Context())
			}
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s with %q: %v, want an invalid folder", what, typo, err)
			}
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// FuzzURL checks that each folder has a URL, and that each other URL leads to a folder or is an
// *InvalidError that shows no password.
func FuzzURL(f *testing.F) {
	f.Add("/var/lib/holdfast", "file:./locks?retention=72h")
	f.Add("/a?b#c%20", "file://localhost/x")
	f.Add("/~", "file:~/x?retention=1ns")
	f.Add("//host/share", "file:%zz?%zz#")
	f.Fuzz(func(t *testing.T, folder, rest string) {
		if strings.HasPrefix(folder, "/") && !strings.HasPrefix(folder, "//") && driver.ValidateFolder("folder", folder) == nil &&
			runtime.GOOS != "windows" {
			u := url.URL{Scheme: "file", OmitHost: true, Path: folder}
			if got, _, err := parseURL(strings.ReplaceAll(u.String(), "$", "%24")); err != nil || got != folder {
				t.Errorf("%s: folder %q, error %v; want %q", &u, got, err, folder)
			}
		}
		const secret = "s3cr3t-0f-7h3-u53r"
		for _, raw := range []string{"file:" + rest, "file://user:" + secret + rest, "file://user:" + rest + secret + "@localhost/x"} {
			dir, opts, err := parseURL(raw)
			if err != nil {
				checkInvalidURL(t, raw, secret, err)
				continue
			}
			var c settings
			for _, opt := range opts {
				opt(&c)
			}
			if dir == "" || strings.ContainsAny(dir, "\x00") || len(opts) > 0 && c.retention < minRetention {
				t.Errorf("%q: folder %q, retention %v", raw, dir, c.retention)
			}
		}
	})
}

func checkInvalidURL(t *testing.T, raw, secret string, err error) {
	t.Helper()
	var invalid *driver.InvalidError
	if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "URL") {
		t.Errorf("%q: %v is no *InvalidError about the URL", raw, err)
	} else if strings.Contains(err.Error(), secret) {
		t.Errorf("%q: the password is in %v", raw, err)
	}
}
