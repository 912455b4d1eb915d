//go:build unix

package serverprocess

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// otherUser returns the user as whom servers run that refuse to run as root; nil unless this process
// is root.
func otherUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var found *user.User
	var err error
	for _, name := range []string{"postgres", "nobody"} {
		if found, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("a server that refuses to run as root needs another user: %w", err)
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// giveAway makes the user of such a server the owner of a folder.
func giveAway(dir string) error {
	credential, err := otherUser()
	if credential == nil {
		return err
	}
	return os.Chown(dir, int(credential.Uid), int(credential.Gid))
}

var reachable struct {
	mu     sync.Mutex
	copies map[string]string // by folder
}

// Reachable returns a folder whose programs the user of such a server may run: dir, or a copy of it if a folder above is closed
// to other users, as that of a clone can be. Programs that look for others beside them ask for that right, and the right to use
// the files of every user does not count there. [Run] removes the copy after the tests.
func Reachable(dir string) (string, error) {
	if credential, err := otherUser(); credential == nil || err != nil {
		return dir, err
	}
	if open, err := isOpen(dir); open || err != nil {
		return dir, err
	}
	reachable.mu.Lock()
	defer reachable.mu.Unlock()
	if made := reachable.copies[dir]; made != "" {
		return made, nil
	}
	if shared.dir == "" {
		return "", errors.New("TestMain must call Main or Run of package serverprocess")
	}
	base, err := os.MkdirTemp(shared.dir, "programs-")
	if err != nil {
		return "", err
	}
	made := filepath.Join(base, filepath.Base(dir))
	for _, folder := range []string{shared.dir, base} {
		if err := os.Chmod(folder, 0o711); err != nil { //nolint:gosec // others may pass it and cannot list it
			return "", err
		}
	}
	if err := os.CopyFS(made, os.DirFS(dir)); err != nil {
		return "", err
	}
	if reachable.copies == nil {
		reachable.copies = map[string]string{}
	}
	reachable.copies[dir] = made
	return made, nil
}

// isOpen reports whether every user may pass a folder and all those above it.
func isOpen(dir string) (bool, error) {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false, err
		}
		if dir == filepath.Dir(dir) {
			return true, nil
		}
		dir = filepath.Dir(dir)
	}
}
