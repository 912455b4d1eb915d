//go:build unix

package serverprocess

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
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
