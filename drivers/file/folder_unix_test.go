//go:build unix

package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The driver writes through no link that another user put into the folder, and creates no file
// elsewhere.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	const precious = "precious"
	for _, c := range []struct {
		file    string
		link    func(victim, path string) error
		granted bool
	}{
		{"n.tmp", os.Symlink, true}, // the driver replaces it, whatever it is
		{"n.tmp", os.Link, true},
		{"n.lock", os.Symlink, false},
		{"n.json", os.Symlink, false},
		{".pruned", os.Symlink, false},
	} {
		dir, outside := t.TempDir(), t.TempDir()
		victim, absent := filepath.Join(outside, "victim"), filepath.Join(outside, "absent")
		for _, target := range []string{victim, absent} {
			write(t, victim, precious)
			path := filepath.Join(dir, c.file)
			_ = os.Remove(path)
			if err := c.link(target, path); errors.Is(err, fs.ErrNotExist) {
				continue // a hard link needs a file
			} else if err != nil {
				t.Fatal(err)
			}
			l := newTestLocker(t, dir, newFakeClock().clock())
			lease, err := l.TryAcquire(t.Context(), request("first"))
			if c.granted && err != nil {
				t.Errorf("%s: %v", c.file, err)
			}
			if !c.granted {
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "symbolic link") {
					t.Errorf("%s leads to %s: error %v, want one that names it", c.file, target, err)
				}
				if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
					t.Errorf("%s was touched: %v, error %v", c.file, info, err)
				}
			}
			if c.granted {
				if err := l.Release(t.Context(), lease); err != nil {
					t.Errorf("%s: %v", c.file, err)
				}
			}
			if content, err := os.ReadFile(victim); err != nil || string(content) != precious {
				t.Errorf("%s leads to %s: the victim holds %q, error %v", c.file, target, content, err)
			}
			if _, err := os.Lstat(absent); err == nil {
				t.Errorf("%s leads to %s, which was made", c.file, target)
			}
		}
	}
}

func TestFolderOfOthers(t *testing.T) {
	t.Parallel()
	const root, me, other = 0, 1000, 1001
	for _, c := range []struct {
		uid, me int
		mode    fs.FileMode
		refused string
	}{
		{me, me, 0o700, ""},
		{me, me, 0o755, ""},
		{me, me, 0o775, ""}, // umask 002
		{root, me, 0o770, ""},
		{root, me, fs.ModeSetgid | 0o775, ""},
		{root, me, fs.ModeSticky | 0o777, ""}, // /tmp
		{me, me, fs.ModeSticky | 0o777, ""},
		{root, root, fs.ModeSticky | 0o777, ""},
		{me, me, 0o777, "chmod o-w"},
		{me, me, 0o702, "chmod o-w"},
		{root, me, 0o777, "chmod o-w"},
		{root, root, 0o777, "chmod o-w"},
		{other, me, 0o777, "user 1001"},
		{other, me, fs.ModeSticky | 0o777, "user 1001"},
		{other, me, 0o770, "user 1001"},
		{me, root, 0o700, "user 1000"}, // files of root there could not be read by the owner
	} {
		err := checkFolder("/locks", "/locks", c.uid, c.me, root, fs.ModeDir|c.mode)
		if c.refused == "" {
			if err != nil {
				t.Errorf("folder %+v: %v", c, err)
			}
			continue
		}
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "/locks") {
			t.Errorf("folder %+v: error %v, want one about %q", c, err, c.refused)
		}
	}
	// In a user namespace root may have no number. The owner of the root folder counts as root then.
	const nobody = 65534
	if err := checkFolder("/a/locks", "/a", nobody, root, nobody, fs.ModeDir|0o755); err != nil {
		t.Error(err)
	}
	if err := checkFolder("/a/locks", "/a", other, root, nobody, fs.ModeDir|0o755); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another user's: %v", err)
	}
	if err := checkFolder("/locks", "/locks", me, me, root, fs.ModeSymlink|0o777); err != nil {
		t.Errorf("a link of one's own: %v", err)
	}
	if err := checkFolder("/locks", "/locks", other, me, root, fs.ModeSymlink|0o777); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another's link: %v", err)
	}
}

// New checks the folder, and a link that leads to it.
func TestNewChecksTheFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, allowed := range map[fs.FileMode]bool{0o700: true, 0o775: true, 0o777: false, fs.ModeSticky | 0o777: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := New(dir)
		if allowed != (err == nil) || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("mode %v: error %v, want none: %t", mode, err, allowed)
		}
		if err == nil {
			_ = l.Close(context.WithoutCancel(t.Context()))
		}
	}
	if os.Geteuid() != 0 {
		return // only root can create a file of another user; TestFolderOfOthers tests the rule
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, owned := range []string{dir, link} {
		if err := os.Lchown(owned, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := New(link); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "12345") {
			t.Errorf("%s of another user: error %v", owned, err)
		}
		if err := os.Lchown(owned, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	l := mustNew(t, link)
	lease := mustAcquire(t, l, request("first"))
	for _, file := range []string{"n.json", "n.lock"} {
		path := filepath.Join(dir, file)
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		expectPathError(t, "another user's "+file, filepath.Join(link, file), errOf(l.Renew(t.Context(), lease)))
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	mustRenew(t, l, lease)
}

// New also checks the folders above, and those that links lead through. A user who may rename one
// of them could put a second folder in its place.
func TestNewChecksTheFoldersAbove(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	folder := func(path string, mode fs.FileMode) string {
		path = filepath.Join(base, path)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(target, path string) {
		if err := os.Symlink(target, filepath.Join(base, path)); err != nil {
			t.Fatal(err)
		}
	}
	open := folder("open", 0o777)
	folder("open/locks", 0o700)
	folder("group", 0o775)
	folder("sticky", fs.ModeSticky|0o777)
	folder("closed/a", 0o755)
	link("open", "to-open")                          // relative
	link(base, "closed/up")                          // absolute, with more after it
	link("../../open/../sticky", "closed/a/through") // a folder before ".." counts too
	link("to-itself", "to-itself")
	refused := map[string]string{
		"open/locks": open, "open/new/locks": open, "to-open/locks": open, "closed/up/to-open/new": open,
		"closed/a/through/locks": open, "closed/../open/locks": open, "to-itself/locks": "40 symbolic links",
	}
	allowed := []string{"group/locks", "sticky/locks", "closed/a/locks", "closed/up/sticky/more", "new/and/new"}
	if os.Geteuid() == 0 { // only root can create a file of another user; TestFolderOfOthers tests the rule
		of := folder("of-another", 0o755)
		if err := os.Chown(of, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		link("group", "link-of-another")
		if err := os.Lchown(filepath.Join(base, "link-of-another"), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		refused["of-another/locks"], refused["link-of-another/locks"] = "user 12345", "user 12345"
	}
	for path, want := range refused {
		_, err := New(base + "/" + path) // as written
		if err == nil || !strings.HasPrefix(err.Error(), "holdfast:") && !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", path, err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(open, "new")); err == nil {
		t.Error("a folder was created although it was refused")
	}
	for _, path := range allowed {
		l, err := New(filepath.Join(base, path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		_ = l.Close(t.Context())
	}
}

// If the file with the highest removed token belongs to another user, New refuses the folder. It
// does not wait for the first new lock.
func TestNewChecksThePrunedToken(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make what another user owns")
	}
	for _, name := range []string{".pruned", ".pruned.lock"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		write(t, path, "7")
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		_, err := New(dir)
		expectPathError(t, name, path, err)
		if err != nil && (!strings.Contains(err.Error(), "run as one user") || !strings.HasPrefix(err.Error(), "holdfast:")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The files are accessible to their owner only: data may be secret, and a user who can open a lock
// file can keep it locked.
func TestModes(t *testing.T) {
	t.Parallel()
	l, dir := freshLocker(t)
	mustRelease(t, l, mustAcquire(t, l, request("first")))
	l.settings.retention = 0
	mustAcquire(t, l, driver.Request{Name: "other", ID: driver.NewLeaseID("second"), TTL: time.Minute})
	if _, err := l.prune(context.Background()); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, l, request("third"))
	seen := 0
	for _, file := range []string{"n.json", "n.lock", "other.json", "other.lock", ".pruned", ".pruned.lock"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
		seen++
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != seen {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}
}
