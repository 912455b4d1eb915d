// Package file keeps locks in a folder, for the processes of one machine. It needs no
// server. Importing it registers the URL scheme "file":
//
//	file:/var/lib/holdfast     file:///var/lib/holdfast     file:./locks?retention=72h&history=16
//
// # Files
//
// Each lock has two files:
//
//   - NAME.json is its record, which a person can read.
//   - NAME.lock is an empty file. A process locks it (flock, LockFileEx) while it changes
//     the record.
//
// There is one lock file for each lock, so that one lock's slow disk write does not delay
// another's renewal. Characters that some system does not allow in file names, and
// capitals, are written as %XX. Long names are cut and end with a hash.
//
// Deleting NAME.json makes the lock free and forgets its token and data. Do not rename or
// delete NAME.lock while a process uses the folder: two processes that lock two different
// files do not exclude each other. The driver deletes NAME.lock only while it has it
// locked, together with a record that was not used for the retention.
//
// A record is replaced as a whole: the new one is written to NAME.tmp, which is then
// renamed to NAME.json. A crash or a kill leaves either the old record or the new one. A
// record that cannot be read never counts as free. A damaged record, or one of an unknown
// version, is an error that names the file.
//
// A record has the past holders of its lock ([WithHistory]) as one text in its field past. Earlier
// versions of this driver keep that text when they write the record.
//
// # Waiting
//
// While callers wait, the Locker watches the folder (inotify, kqueue, ReadDirectoryChangesW), with
// one watch for all names, and closes it a few seconds after the last of them. When the file of a
// lock has changed for which somebody waits, the Locker reads the beginning of the record, and
// wakes the waiters unless it names a holder. So renewals wake nobody.
//
// On Linux renewals do not even cause an event, which matters where a process waits for many names.
// Whoever frees a lock gives the record the mode that it has already, and waiters watch for that, and for
// removed records. If the file system refuses it, the process ends just before it, or a person edits a
// record, waiters notice at their next poll, within 20 s.
//
// Where the folder cannot be watched, waiters poll, and one warning says why; see [WithLogger].
// Common causes are the limits of inotify (fs.inotify.max_user_instances and max_user_watches),
// and on macOS and the BSDs a folder with more than 512 files, since kqueue needs an open file for
// each. Changes by another system, such as the host of a virtual machine that shares the folder,
// cause no events; such a folder is not supported in any case. Nothing but speed depends on
// events: waiters also read the record from time to time, and when the holder's lease ends.
//
// # Clock
//
// On Linux, CLOCK_BOOTTIME judges expiry. All processes share it, it counts suspend, and
// nobody can set it. The record has the boot's ID (/proc/sys/kernel/random/boot_id) and the
// clock's reading; a reboot ends every lease. The wall clock matters to tokens only: a token is
// at least the wall clock's milliseconds.
//
// On other systems the wall clock judges expiry. Setting it forward ends leases early, so
// that two holders may overlap. A reboot frees no lock before its lease has ended.
//
// # One machine
//
// Processes that see the same boot ID run on the same kernel, so containers on one host may
// share a folder. If a record has another boot ID, the driver compares the machine:
// /etc/machine-id on Linux, or else the host name. If it is another one, the folder is shared
// between machines, which this driver does not support, and the record is an error that names
// the file. On systems other than Linux, where the host name may change, that is so only for a
// record with a holder.
//
// If the machine is the same, the record is of an earlier boot, or of a container with a boot
// ID of its own, as systemd-nspawn and LXC (LXD, Incus, Proxmox) make them. Such containers share
// a folder if all of them, and the host, have the same /etc/machine-id. A record with a reading
// that the clock has not reached yet is of an earlier boot, so its lease has ended. With any
// other reading the lease may be that of a container, and lasts until this clock has passed its
// end. So if the machine has run longer since a reboot than before it, a lock may stay held for
// its TTL.
//
// There are two limits. Machines with a copied /etc/machine-id look like one machine. A host name
// may change: with a reboot in a container without that file, with the network on macOS. The
// records of the old name must then be deleted by hand, on macOS, the BSDs and Windows only those
// that have a holder.
//
// # Retention
//
// A lock is last used at its release, its expiry or a later write. Its record stays for a
// day after that. [WithRetention] and the URL parameter retention change the time, to an
// hour at least. Then the record is removed, with its data and NAME.lock. A record has the
// retention of the process that was last granted the lock. If the process that removes
// records has another retention, the longer one counts. A grant starts the removal in the
// background, at most once an hour for all processes of a folder. The removal also deletes
// a NAME.lock that is empty and has no record, as a crash leaves it.
//
// The time since the last use comes from the file's modification time. For a record of this
// boot, the clock that judges expiry must agree. So on Linux a step of the wall clock
// removes nothing early before the next reboot.
//
// The file .pruned has the highest token that was removed, and .pruned.lock is its lock
// file. The next token of a name without a record is higher, so tokens keep rising.
// Without .pruned they rise once the wall clock has passed the last token. Keep data that
// must not get lost elsewhere, or set a long retention.
//
// # Permissions
//
// The files are accessible to their owner only, and so is the folder if the driver creates
// it. All processes that use a folder run as one user. Like sshd, [New] refuses a folder
// that another user could replace, or whose files another user could replace:
//
//   - The folder, each folder above it and each symbolic link on the way must belong to the
//     process's user or to root.
//   - Other users must not be able to write the folders, unless the sticky bit is set, as
//     on /tmp.
//   - Members of a folder's group are trusted.
//
// In the folder itself the driver follows no symbolic links and refuses files of other
// users. Systems without the owners and modes of Unix, such as Windows, have no such check:
// keep the folder where other users cannot write.
package file

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

const (
	backend = "file"
	// callLimit is the time limit of a call whose context does not end earlier.
	callLimit = 5 * time.Second
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

var params = []string{driver.ParamHistory, paramRetention}

// parseURL returns the folder and the options of a URL.
func parseURL(rawURL string) (dir string, opts []Option, err error) {
	const form = "file: and a folder of this machine, such as file:/var/lib/holdfast or file:./locks, special characters as %XX"
	bad := func(value string) (string, []Option, error) { return "", nil, driver.Invalid("URL", value, form) }
	u, query, err := driverutil.ParseURL(rawURL, form, params...)
	if err != nil {
		return "", nil, err
	}
	if u.User != nil || u.Host != "" && u.Host != "localhost" {
		return bad("with a host")
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
	if query.Has(driver.ParamHistory) {
		history, err := driver.HistoryParam(query)
		if err != nil {
			return "", nil, err
		}
		opts = append(opts, WithHistory(history))
	}
	dir = u.Path
	if u.Opaque != "" {
		if dir, err = url.PathUnescape(u.Opaque); err != nil {
			return bad("with an invalid %XX")
		}
	}
	if dir == "" || strings.ContainsRune(dir, 0) {
		return bad("without a folder")
	}
	if err := driver.ValidateFolder("URL folder", dir); err != nil {
		return "", nil, err
	}
	if strings.HasPrefix(dir, "~") {
		return "", nil, driver.Invalid("URL", "with a folder that begins with ~",
			"written with $HOME: no shell expands ~ there (file:./~ is a folder of that name)")
	}
	// A variable that no shell has expanded would make a folder with that name, and another lock for each caller.
	if strings.Contains(u.EscapedPath()+u.Opaque, "$") {
		return "", nil, driver.Invalid("URL", "with a $ in the folder",
			"the folder itself: nothing expands variables there ($ in a folder's name is %24)")
	}
	if first, _, _ := strings.Cut(dir, "/"); u.Opaque != "" && first != "." && first != ".." {
		return "", nil, driver.Invalid("URL", fmt.Sprintf("with the relative folder %.60q", dir),
			"an absolute folder such as file:/var/lib/holdfast (file:./locks is in the working directory, so two directories are two backends)")
	}
	if filepath.VolumeName(dir[1:]) != "" {
		dir = dir[1:] // Windows: file:///C:/locks has the path /C:/locks
	}
	return filepath.FromSlash(dir), opts, nil
}

func checkRetention(field string, d time.Duration) error {
	if d < minRetention {
		return driver.Invalid(field, driver.FormatDuration(d), "at least "+driver.FormatDuration(minRetention))
	}
	return nil
}

type settings struct {
	retention time.Duration
	history   int
	logger    *slog.Logger
}

// Option sets up a Locker.
type Option func(*settings)

// WithRetention sets how long a lock's record and its data are kept after the lock's last
// use: at least an hour. The default is a day. See the package's section on retention.
func WithRetention(d time.Duration) Option { return func(c *settings) { c.retention = d } }

// WithHistory sets how many past holders are kept in a lock's record: 0 to [driver.MaxHistory]. The
// default is [driver.DefaultHistory].
func WithHistory(n int) Option { return func(c *settings) { c.history = n } }

// WithLogger sets the logger for warnings. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option { return func(c *settings) { c.logger = logger } }

// Locker is a [driver.Locker] that can also wake waiters, list locks, read many of them in one
// call, break them, and store data. It has no Queue: there is no order between processes. It has
// no BatchRenewer and no BatchReleaser: each lock has a file of its own, so a batch would save nothing.
type Locker struct {
	dir        string
	clock      clock
	disk       disk
	settings   settings
	callLimit  time.Duration
	forReading bool        // it only reads ([driver.OpenForReading])
	absent     atomic.Bool // it only reads, and there was no folder so far

	acquires acquires
	watcher  *watcher

	calls     *driverutil.Calls // also prunes and the watch of the folder, which Close interrupts
	mu        sync.Mutex
	nextPrune time.Time
	pruning   bool
}

var _ driver.Locker = (*Locker)(nil)

// New makes a Locker on a folder. It creates the folder if it is missing, accessible to its
// owner only. It refuses a folder that other users could replace; see the package's section
// on permissions.
func New(dir string, opts ...Option) (*Locker, error) {
	clock, err := systemClock()
	if err != nil {
		return nil, driver.Errorf("file: reading the system's clock: %w", err)
	}
	return newLocker(dir, clock, opts...)
}

func newLocker(dir string, clock clock, opts ...Option) (*Locker, error) {
	l, err := bareLocker(dir, clock, opts...)
	if err != nil {
		return nil, err
	}
	if err := makeFolder(l.dir, l.settings.logger); err != nil {
		return nil, err
	}
	return l, nil
}

// bareLocker makes a Locker on a folder that may be missing or unsafe.
func bareLocker(dir string, clock clock, opts ...Option) (*Locker, error) {
	c := settings{retention: defaultRetention, history: driver.DefaultHistory, logger: slog.Default()}
	if err := driverutil.ApplyOptions(&c, opts); err != nil {
		return nil, err
	}
	if c.logger == nil {
		return nil, driver.Invalid("Logger", "nil", "a logger")
	}
	if err := checkRetention(paramRetention, c.retention); err != nil {
		return nil, err
	}
	if err := driver.ValidateHistory(driver.ParamHistory, c.history); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, driver.Invalid("folder", `""`, "the path of a folder")
	}
	if err := driver.ValidateFolder("folder", filepath.ToSlash(dir)); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dir) // the program may change its working directory
	if err != nil {
		return nil, driver.Errorf("file: %w", err)
	}
	l := &Locker{dir: abs, clock: clock, disk: systemDisk(), settings: c, calls: driverutil.NewCalls(),
		callLimit: callLimit}
	l.watcher = newWatcher(l, c.logger)
	return l, nil
}

// Info implements [driver.Locker]. TTLs are from 10 ms to a year, since a disk may need several milliseconds to
// answer. Grants survive: when the machine crashes, all holders end with it.
func (l *Locker) Info() driver.Info {
	return driver.Info{Backend: backend, Limits: limits, Modes: driver.Modes{Shared: true}, Expiry: driver.ByServer,
		Failover: driver.GrantsSurvive, Free: driver.FreeRecord{Token: true, Data: true, History: true, RemovedAfter: l.settings.retention},
		History: l.settings.history}
}

// Capabilities has all but a [driver.Queue], a [driver.BatchRenewer] and a [driver.BatchReleaser].
func (l *Locker) Capabilities() driver.Capabilities {
	return driver.Capabilities{Waker: l.watcher, BatchInspector: l, Lister: l, Breaker: l, DataStore: l, Checker: l}
}

// Close waits for calls that the disk has not answered yet, although their context has
// ended. It waits for a few seconds, or until ctx ends.
func (l *Locker) Close(ctx context.Context) error {
	idle, first := l.calls.Shut()
	l.calls.Interrupt()
	if !first || l.calls.Running() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.callLimit+time.Second)
	defer cancel()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &driver.OpError{Op: "close", Backend: backend, Err: fmt.Errorf("the disk under %s does not answer", l.dir)}
	}
}
