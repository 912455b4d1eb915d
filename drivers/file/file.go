// Package file keeps locks in a folder, for the processes of one machine: no
// server is needed. Importing it registers the URL scheme "file":
//
//	file:/var/lib/holdfast     file:///var/lib/holdfast     file:locks?retention=72h
//
// Each lock has a record NAME.json, which a person can read, and NAME.lock, an
// empty file that is locked (flock, LockFileEx) while a process reads or writes
// the record. There is one for each lock, so that one lock's slow disk write
// does not delay another's renewal. Characters that some system does not allow in
// file names, and capitals, are written as %XX; long names are cut, with a hash.
// Deleting NAME.json makes the lock free and forgets its token and data. Do not
// rename or delete NAME.lock while a process uses the folder, since two processes
// that lock two files do not exclude each other. The driver deletes it only while
// it has it locked, together with a record that nobody used for the retention.
//
// A record is replaced by renaming a complete new one, NAME.tmp, over it, so that
// a crash or kill leaves the old one or the new one. What it cannot read the
// driver never takes for free: a damaged record, or one of an unknown version, is
// an error that names the file.
//
// # Clock
//
// On Linux, expiry is judged by CLOCK_BOOTTIME, which all processes share, which
// counts suspend, and which nobody can set; the record holds the boot's ID
// (/proc/sys/kernel/random/boot_id), and after a reboot every lock is free. The
// wall clock matters to tokens only: each is at least its milliseconds. Elsewhere
// the wall clock judges: setting it forward ends leases early, so that two
// holders may overlap, and a reboot frees nothing before its lease has ended.
//
// # One machine
//
// Processes that see the same boot ID run on the same kernel: containers on one
// host may share a folder. A record with another boot's ID is that of an earlier
// boot if it shows the same machine, which /etc/machine-id tells on Linux, or
// else the host name. If not, it is an error that names the file: the folder is
// shared between machines, for which this driver is no good. It cannot tell
// machines with a copied /etc/machine-id apart. A container without that file
// has a host name that may change with it, so that after a reboot the records of
// the old one must be deleted by hand.
//
// # Retention
//
// A record stays for a day after the lock's last use, which is its release, its
// expiry or a later write; [WithRetention] and the URL parameter retention change
// that, to an hour at least. Then it is removed, with its data and NAME.lock. A
// record holds the retention of the process that was last granted the lock; the
// longer one of that and the removing process's own counts. A grant starts the
// removal in the background, at most once an hour for the processes of a folder. It
// also removes a NAME.lock that is empty and has no record, as a crash leaves it.
//
// The time since the last use is taken from the file's time of modification. For a
// record of this boot the clock that judges expiry must agree, so that on Linux a
// step of the wall clock removes nothing early before the next reboot.
//
// The file .pruned holds the highest token that was removed, with .pruned.lock
// beside it. The next token of a name without a record is higher, so that tokens go
// on rising. Without that file, they do so once the wall clock has passed the last
// token. Data that must not get lost belong elsewhere, or need a long retention.
//
// # Permissions
//
// The files are for their owner alone, and so is the folder if the driver makes it:
// all processes that use a folder run as one user. [New] refuses a folder that
// another user could replace, or whose files another user could replace, as sshd
// does: the folder, each folder above it and each symbolic link on the way must
// belong to the process's user or to root, and other users must not be able to
// write the folders. The sticky bit is enough, as /tmp has it. Members of a folder's
// group are trusted. In the folder itself symbolic links are not followed, and
// files of other users are refused.
//
// Systems without Unix's owners and modes, such as Windows, have no such check: keep
// the folder where other users cannot write.
package file

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/text"
)

const (
	backend = "file"
	// ownLimit bounds a call whose context has no earlier end.
	ownLimit = 5 * time.Second
)

var limits = driver.Limits{
	MinTTL:   10 * time.Millisecond,
	MaxTTL:   365 * 24 * time.Hour,
	TTLStep:  time.Millisecond,
	MaxName:  1024,
	MaxOwner: 1024,
	MaxData:  256 << 10, // each renewal writes the data again
	Poll:     100 * time.Millisecond,
}

func init() { driver.Register("file", open) }

func open(_ context.Context, rawURL string) (driver.Locker, error) {
	dir, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return New(dir, opts...)
}

const (
	paramRetention = "retention"
	fieldRetention = "URL parameter " + paramRetention
)

// parseURL finds the folder in a URL, and the options.
func parseURL(rawURL string) (dir string, opts []Option, err error) {
	bad := func(value string) (string, []Option, error) {
		return "", nil, driver.Invalid("URL", value, "file: and a folder of this machine, such as file:/var/lib/holdfast or file:locks, special characters as %XX")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return bad("with scheme file")
	}
	if u.User != nil || u.Host != "" && u.Host != "localhost" {
		return bad("with a host")
	}
	if u.Fragment != "" {
		return bad("with a #")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("with parameters that cannot be read")
	}
	if err := driver.CheckParams(query, paramRetention); err != nil {
		return "", nil, err
	}
	if value := query.Get(paramRetention); query.Has(paramRetention) {
		retention, err := time.ParseDuration(value)
		if err != nil {
			return "", nil, driver.Invalid(fieldRetention, fmt.Sprintf("%.40q", value), "a duration such as 24h")
		}
		if err := checkRetention(fieldRetention, retention); err != nil {
			return "", nil, err
		}
		opts = append(opts, WithRetention(retention))
	}
	dir = u.Path
	if u.Opaque != "" {
		if dir, err = url.PathUnescape(u.Opaque); err != nil {
			return bad("with a wrong %XX")
		}
	}
	if dir == "" || strings.ContainsRune(dir, 0) {
		return bad("without a folder")
	}
	if strings.HasPrefix(dir, "~") {
		return "", nil, driver.Invalid("URL", "with a folder that begins with ~", "written with $HOME: no shell expands ~ there (file:./~ is a folder of that name)")
	}
	if filepath.VolumeName(dir[1:]) != "" {
		dir = dir[1:] // Windows: file:///C:/locks has the path /C:/locks
	}
	return filepath.FromSlash(dir), opts, nil
}

func checkRetention(field string, d time.Duration) error {
	if d < minRetention {
		return driver.Invalid(field, text.Duration(d), "at least "+text.Duration(minRetention))
	}
	return nil
}

type settings struct {
	retention time.Duration
}

// Option sets up a Locker.
type Option func(*settings)

// WithRetention sets how long after its expiry or release a lock's record is kept, with its
// data: at least an hour, a day if not set. See the package's section on retention.
func WithRetention(d time.Duration) Option { return func(c *settings) { c.retention = d } }

// Locker is a [driver.Locker] that can also list, break, and keep data. It
// has no Watcher: asking costs little, so waiters poll. It renews and looks at locks one
// by one, since each has a file of its own: no call would be saved by doing many at once.
type Locker struct {
	dir      string
	clock    clock
	disk     disk
	settings settings

	acquires acquires

	closing context.Context // ends with Close, and a prune with it
	stop    context.CancelFunc

	mu        sync.Mutex
	nextPrune time.Time
	pruning   bool
	closed    bool
	calls     int           // under way
	idle      chan struct{} // made by Close, closed when there are no calls any more
}

var _ interface {
	driver.Locker
	driver.Lister
	driver.Breaker
	driver.DataStore
} = (*Locker)(nil)

// New makes a Locker on a folder, which it creates, for its owner alone, if it
// is missing. It refuses a folder that other users could replace: see the package's section
// on permissions.
func New(dir string, opts ...Option) (*Locker, error) {
	clock, err := systemClock()
	if err != nil {
		return nil, fmt.Errorf("holdfast: file: reading the system's clock: %w", err)
	}
	return newLocker(dir, clock, opts...)
}

func newLocker(dir string, clock clock, opts ...Option) (*Locker, error) {
	c := settings{retention: defaultRetention}
	for _, opt := range opts {
		opt(&c)
	}
	if err := checkRetention(paramRetention, c.retention); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, driver.Invalid("folder", `""`, "the path of a folder")
	}
	abs, err := filepath.Abs(dir) // the program may change its folder
	if err != nil {
		return nil, fmt.Errorf("holdfast: file: %w", err)
	}
	if err := makeFolder(abs); err != nil {
		return nil, err
	}
	l := &Locker{dir: abs, clock: clock, disk: systemDisk(), settings: c}
	l.closing, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Limits allows TTLs from 10 ms, less than which a disk may need to answer, to a
// year.
func (l *Locker) Limits() driver.Limits { return limits }

// Capabilities are to list, to break and to keep data.
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Lister: l, Breaker: l, DataStore: l}
}

// Close waits, for a few seconds or until ctx ends, for calls that the disk has not answered
// yet although their context has ended.
func (l *Locker) Close(ctx context.Context) error {
	idle := l.shut()
	if idle == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownLimit+time.Second)
	defer cancel()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &driver.OpError{Op: "close", Backend: backend, Err: fmt.Errorf("the disk under %s does not answer", l.dir)}
	}
}

// shut refuses further calls. The channel is closed when those under way have ended; it is
// nil if there are none, or if the Locker was closed before.
func (l *Locker) shut() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
	if l.closed || l.calls == 0 {
		l.closed = true
		return nil
	}
	l.closed, l.idle = true, make(chan struct{})
	return l.idle
}
