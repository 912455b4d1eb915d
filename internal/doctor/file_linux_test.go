package doctor_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/doctor"
)

// place is a folder for the locks of a test, on the disk of the tests.
type place struct {
	t        *testing.T
	dir      string   // of the test
	url      string   // of the folder for the locks, dir/locks
	env      []string // for the helper
	launcher []string // the program before the helper
	setup    string   // a script in the helper's namespaces
}

func newPlace(t *testing.T) *place {
	t.Helper()
	if out, err := exec.Command("unshare", append(unshare("--mount")[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("this machine makes no namespaces (%v: %s); the tests of the driver's check do not need them", err, out)
	}
	dir := t.TempDir()
	locks := filepath.Join(dir, "locks")
	if err := os.Mkdir(locks, 0o700); err != nil {
		t.Fatal(err)
	}
	return &place{t: t, dir: dir, url: "file:" + locks, launcher: unshare("--mount")}
}

// unshare starts a program in namespaces of its own, as root of a user namespace if the test has no
// rights.
func unshare(flags ...string) []string {
	all := append([]string{"unshare"}, flags...)
	if os.Geteuid() != 0 {
		all = append(all, "--user", "--map-root-user")
	}
	return append(all, "--")
}

// twice examines the folder, applies the remedies and examines it again.
func (p *place) twice() (first, second *doctor.Report) {
	p.t.Helper()
	binary, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	out := filepath.Join(p.dir, "reports.json")
	script := "set -e; mkdir -p " + p.dir + "; " + p.setup + "\nexec " + binary
	cmd := exec.CommandContext(bounded(p.t), p.launcher[0], append(p.launcher[1:], "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), append([]string{envHelper + "=" + out, envURL + "=" + p.url}, p.env...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %v %s", cmd.Args, err, text)
	}
	reports := read(p.t, out)
	return reports[0], reports[1]
}

func (p *place) write(name, content string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "locks", name), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// Each misconfiguration of a folder is found, and its own remedy helps. Commands in findings are
// run as they stand there; a remedy without a command is applied as apply says.
func TestFolder(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, p *place)
		subject string
		level   driver.Level
		remedy  string // what the remedy must contain
		detail  string // what the detail must contain
	}{
		"missing": {func(_ *testing.T, p *place) { p.setup = "rmdir " + p.dir + "/locks" },
			"folder", driver.LevelDoubtful, "mkdir -p -m 700", "does not exist"},
		"on a network": {func(_ *testing.T, p *place) {
			p.env = []string{envMount + "=fuse.sshfs", envAt + "=" + p.dir + "/locks", envSecond + "=file:" + p.dir}
		}, "file system", driver.LevelWrong, "local disk", "user@elsewhere"},
		"kept by a program": {func(_ *testing.T, p *place) {
			p.env = []string{envMount + "=fuse.something", envAt + "=" + p.dir + "/locks", envSecond + "=file:" + p.dir}
		}, "file system", driver.LevelDoubtful, "local disk", "fuse.something"},
		"in memory": {func(_ *testing.T, p *place) {
			p.setup = "mount -t tmpfs -o mode=700 none " + p.dir + "/locks"
			p.env = []string{envSecond + "=file:" + p.dir}
		}, "file system", driver.LevelDoubtful, "local disk", "tmpfs"},
		"in a container's layer": {func(_ *testing.T, p *place) {
			p.setup = "cd " + p.dir + "; mkdir t; mount -t tmpfs none t; mkdir t/lower t/upper t/work; chmod 700 t/*; mount -t overlay -o " +
				"lowerdir=t/lower,upperdir=t/upper,workdir=t/work overlay locks"
			p.env = []string{envSecond + "=file:" + p.dir}
		}, "file system", driver.LevelDoubtful, "volume of the host", "overlay"},
		"read-only": {func(_ *testing.T, p *place) {
			p.setup = "mount --bind " + p.dir + " " + p.dir + "; mount -o remount,ro,bind " + p.dir
			p.env = []string{envApply + "=mount -o remount,rw,bind " + p.dir}
		}, "file system", driver.LevelWrong, "mount -o remount,rw", "is read-only"},
		"full": {func(_ *testing.T, p *place) {
			p.setup = "mount -t tmpfs -o size=64k,mode=700 none " + p.dir + "/locks; dd if=/dev/zero of=" + p.dir +
				"/locks/big bs=64k count=1 2>/dev/null"
			p.env = []string{envApply + "=rm " + p.dir + "/locks/big; mount -o remount,size=64m " + p.dir + "/locks"}
		}, "free space", driver.LevelWrong, "Free some space", "none"},
		"others may write": {func(t *testing.T, p *place) { chmod(t, p.dir+"/locks", 0o707) },
			"owner and mode", driver.LevelWrong, "chmod o-w", "0707"},
		"others may write above": {func(t *testing.T, p *place) { chmod(t, p.dir, 0o707) },
			"owner and mode", driver.LevelWrong, "chmod o-w", "by way of"},
		"as in /tmp": {func(t *testing.T, p *place) { chmod(t, p.dir+"/locks", 0o707|os.ModeSticky) },
			"owner and mode", driver.LevelDoubtful, "chmod o-w", "every user"},
		"the group may write": {func(t *testing.T, p *place) { chmod(t, p.dir+"/locks", 0o770) },
			"owner and mode", driver.LevelDoubtful, "chmod g-w", "group"},
		"without an identity of the machine": {func(_ *testing.T, p *place) {
			p.setup = "touch /etc/machine-id; mount --bind /dev/null /etc/machine-id"
			p.env = []string{envApply + "=umount /etc/machine-id"}
		}, "machine identity", driver.LevelDoubtful, "/etc/machine-id", "host name"},
		"no watches left": {func(_ *testing.T, p *place) {
			p.launcher = []string{"unshare", "--user", "--map-root-user", "--mount", "--"}
			p.setup = "echo 0 > /proc/sys/user/max_inotify_instances"
			p.env = []string{envApply + "=echo 1024 > /proc/sys/user/max_inotify_instances"}
		}, "watching the folder", driver.LevelDoubtful, "sysctl -w fs.inotify.max_user_instances", "waiters poll"},
		"files of another program": {func(_ *testing.T, p *place) {
			p.write("notes.txt", "")
			p.env = []string{envApply + "=rm " + p.dir + "/locks/notes.txt"}
		}, "foreign files", driver.LevelDoubtful, "folder of their own", "notes.txt"},
		"a damaged record": {func(_ *testing.T, p *place) {
			p.write("nightly.json", "{")
			p.env = []string{envApply + "=rm " + p.dir + "/locks/nightly.json"}
		}, "records", driver.LevelWrong, "delete them", "nightly.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			c.prepare(t, p)
			first, second := p.twice()
			f := wantFound(t, first, c.subject, c.level, c.remedy)
			if !strings.Contains(f.Detail, c.detail) {
				t.Errorf("the detail lacks %q: %s", c.detail, f.Detail)
			}
			wantFound(t, second, c.subject, driver.LevelOK, "")
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// A folder on a disk is right, also in a time namespace, and the check leaves nothing behind.
func TestFolderHealthy(t *testing.T) {
	for name, flags := range map[string][]string{"here": {"--mount"}, "in a time namespace": {"--mount", "--fork", "--time", "--boottime",
		"100000"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.launcher = unshare(flags...)
			p.write("machine-id", "0123456789abcdef0123456789abcdef")
			p.setup = "mv " + p.dir + "/locks/machine-id " + p.dir + "; touch /etc/machine-id; mount --bind " + p.dir + "/machine-id /etc/machine-id"
			_, r := p.twice()
			for _, f := range r.Findings {
				if f.Level != driver.LevelOK && f.Subject != "file system" && !isSlowness(f) { // that of the machine that runs the test
					t.Errorf("%s is %v: %s", f.Subject, f.Level, f.Detail)
				}
			}
			if name != "here" {
				if f, _ := finding(r, "clock"); !strings.Contains(f.Detail, "27h46m40s") {
					t.Errorf("the time namespace is not named: %s", f.Detail)
				}
			}
			left, err := os.ReadDir(filepath.Join(p.dir, "locks"))
			if err != nil || len(left) > 0 {
				t.Errorf("the check left %v, %v", left, err)
			}
		})
	}
}

// A process of another user may not use the folder until it is given to that user.
func TestFolderOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	p := newPlace(t)
	for _, dir := range []string{filepath.Dir(p.dir), p.dir, p.dir + "/locks"} {
		chmod(t, dir, 0o755)
	}
	out := filepath.Join(p.dir, "reports")
	if err := errors.Join(os.Mkdir(out, 0o777), os.Chmod(out, 0o777)); err != nil { //nolint:gosec // the other user writes there
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	helper := filepath.Join(p.dir, "helper")
	if err := os.WriteFile(helper, content, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	asNobody := func() *doctor.Report {
		reports := filepath.Join(out, "reports.json")
		cmd := exec.CommandContext(bounded(t), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", helper)
		cmd.Env = append(os.Environ(), envHelper+"="+reports, envURL+"="+p.url, envApply+"=true")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", cmd.Args, err, text)
		}
		return read(t, reports)[0]
	}
	f := wantFound(t, asNobody(), "owner and mode", driver.LevelWrong, "chown 65534 "+p.dir+"/locks")
	if text, err := exec.Command("sh", "-c", f.Command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", f.Command, err, text)
	}
	wantFound(t, asNobody(), "owner and mode", driver.LevelOK, "")
}

// read reads the reports of a helper.
func read(t *testing.T, path string) (reports []*doctor.Report) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &reports); err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		checkSecrets(t, r)
	}
	return reports
}
