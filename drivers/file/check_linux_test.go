package file

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1g
31 22 0:27 / /mnt/with\040space rw - nfs4 server:/export rw,vers=4.2
32 22 0:28 / /srv ro,relatime - ext4 /dev/vdb rw
33 22 0:29 / /srv/data rw - xfs /dev/vdc ro
34 22 0:30 / /covered rw - nfs server:/old rw
35 34 0:31 / /covered rw - ext4 /dev/vdd rw
a line that is cut
`

// A path belongs to the mount with the longest path, and of those to the last.
func TestMountOf(t *testing.T) {
	for path, want := range map[string]mount{
		"/var/lib/locks":        {"/", "ext4", "/dev/vda", false},
		"/tmp":                  {"/tmp", "tmpfs", "tmpfs", false},
		"/tmporary":             {"/", "ext4", "/dev/vda", false},
		"/mnt/with space/locks": {"/mnt/with space", "nfs4", "server:/export", false},
		"/srv/x":                {"/srv", "ext4", "/dev/vdb", true},
		"/srv/data/x":           {"/srv/data", "xfs", "/dev/vdc", true},
		"/covered/x":            {"/covered", "ext4", "/dev/vdd", false},
	} {
		if got, ok := mountOf(mounts, path); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", path, got, ok, want)
		}
	}
	if got, ok := mountOf("", "/x"); ok {
		t.Errorf("without a table: %+v", got)
	}
}

// The kinds of file systems that cannot be mounted in a test are recognised by their names.
func TestFileSystemKinds(t *testing.T) {
	for kind, want := range map[string]driver.Level{
		"ext4": driver.LevelOK, "xfs": driver.LevelOK, "btrfs": driver.LevelOK, "zfs": driver.LevelOK,
		"nfs": driver.LevelWrong, "nfs4": driver.LevelWrong, "cifs": driver.LevelWrong, "smb3": driver.LevelWrong, "9p": driver.LevelWrong,
		"ceph": driver.LevelWrong, "virtiofs": driver.LevelWrong, "fuse.sshfs": driver.LevelWrong,
		"tmpfs": driver.LevelDoubtful, "overlay": driver.LevelDoubtful, "fuse.unknown": driver.LevelDoubtful, "fuseblk": driver.LevelDoubtful,
	} {
		f := mount{point: "/mnt", kind: kind, source: "s"}.examine()
		if f.Level != want || (f.Remedy != "") != (want > driver.LevelOK) {
			t.Errorf("%s: %+v, want %v", kind, f, want)
		}
	}
}

// The driver knows its own files, whatever the names of the locks are.
func TestForeignFiles(t *testing.T) {
	for name, ours := range map[string]bool{
		"nightly.json": true, "nightly.lock": true, "nightly.tmp": true, stem("Ä/b") + ".json": true, ".pruned": true, ".pruned.lock": true,
		".pruned.tmp": true,
		"notes.txt":   false, "README": false, "Upper.json": false, ".hidden": false, ".json": false,
	} {
		if isOurs(name) != ours {
			t.Errorf("%s: %v", name, !ours)
		}
	}
}

func TestQuoteShell(t *testing.T) {
	for path, want := range map[string]string{"/var/lib/locks": "/var/lib/locks", "/my locks": "'/my locks'", "/it's": `'/it'\''s'`} {
		if got := quoteShell(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
