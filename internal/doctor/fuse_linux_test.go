package doctor_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// The messages of FUSE that an empty folder needs (linux/fuse.h).
const (
	fuseLookup     = 1
	fuseForget     = 2
	fuseGetattr    = 3
	fuseStatfs     = 17
	fuseInit       = 26
	fuseOpendir    = 27
	fuseReaddir    = 28
	fuseReleasedir = 29
)

// mountFUSE mounts an empty folder that this process keeps, as a file system of another machine is
// mounted: the kernel knows it by the name of its program, such as fuse.sshfs.
func mountFUSE(kind, at string) (unmount func(), err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/fuse: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40700,user_id=%d,group_id=%d", fd, syscall.Getuid(), syscall.Getgid())
	if err := unix.Mount("user@elsewhere:/locks", at, kind, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(fmt.Errorf("mount of %s: %w", kind, err), unix.Close(fd))
	}
	go serveFUSE(fd)
	return func() {
		_ = unix.Unmount(at, unix.MNT_DETACH)
		_ = unix.Close(fd)
	}, nil
}

// serveFUSE answers until the file system is unmounted.
func serveFUSE(fd int) {
	message := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, message)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		opcode, id := binary.NativeEndian.Uint32(message[4:]), binary.NativeEndian.Uint64(message[8:])
		if opcode == fuseForget {
			continue // has no answer
		}
		body, errno := answerFUSE(opcode)
		answer := make([]byte, 16, 16+len(body))
		binary.NativeEndian.PutUint32(answer[0:], uint32(16+len(body)))
		binary.NativeEndian.PutUint32(answer[4:], uint32(-int32(errno)))
		binary.NativeEndian.PutUint64(answer[8:], id)
		if _, err := unix.Write(fd, append(answer, body...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}

func answerFUSE(opcode uint32) ([]byte, syscall.Errno) {
	switch opcode {
	case fuseInit:
		body := make([]byte, 64)
		binary.NativeEndian.PutUint32(body[0:], 7)
		binary.NativeEndian.PutUint32(body[4:], 31)
		binary.NativeEndian.PutUint32(body[20:], 4096) // max_write
		return body, 0
	case fuseGetattr:
		body := make([]byte, 16+88)
		attr := body[16:]
		binary.NativeEndian.PutUint64(attr[0:], 1)                                 // inode
		binary.NativeEndian.PutUint32(attr[60:], syscall.S_IFDIR|0o700)            // mode
		binary.NativeEndian.PutUint32(attr[64:], 2)                                // links
		binary.NativeEndian.PutUint32(attr[68:], uint32(max(syscall.Getuid(), 0))) //nolint:gosec // owner
		binary.NativeEndian.PutUint32(attr[72:], uint32(max(syscall.Getgid(), 0))) //nolint:gosec // group
		return body, 0
	case fuseStatfs:
		body := make([]byte, 80)
		for i := range 5 {
			binary.NativeEndian.PutUint64(body[8*i:], 1<<20) // blocks and files, all free
		}
		binary.NativeEndian.PutUint32(body[40:], 4096)
		binary.NativeEndian.PutUint32(body[44:], 255)
		return body, 0
	case fuseOpendir:
		return make([]byte, 16), 0
	case fuseReaddir, fuseReleasedir:
		return nil, 0
	case fuseLookup:
		return nil, syscall.ENOENT
	}
	return nil, syscall.ENOSYS
}
