package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
)

func openForCheck(_ context.Context, rawURL string) (driver.Locker, error) {
	l, err := openBare(rawURL)
	if err != nil {
		return nil, err
	}
	l.nextPrune = time.Now().Add(pruneEvery) // the grant of a probe removes no records
	return l, nil
}

// What [Locker.Check] examines.
const (
	subjectFolder     = "folder"
	subjectMode       = "owner and mode"
	subjectFileSystem = "file system"
	subjectSpace      = "free space"
	subjectClock      = "clock"
	subjectMachine    = "machine identity"
	subjectWatch      = "watching the folder"
	subjectForeign    = "foreign files"
)

type findings = driverutil.Report

// Check implements [driver.Checker]. It only reads.
func (l *Locker) Check(ctx context.Context, report func(driver.Finding)) error {
	found, err := result(func(set func([]driver.Finding)) error {
		return l.call(ctx, "check", "", nil, func(context.Context) error {
			var all []driver.Finding
			l.examine(func(f driver.Finding) { all = append(all, f) })
			set(all)
			return nil
		})
	})
	if err != nil && !errors.Is(err, driver.ErrClosed) && ctx.Err() == nil { // the disk hangs
		report(driver.Finding{Subject: subjectFolder, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
			Remedy: "Look at the disk or the mount under the folder; a hanging network mount blocks every call."})
		return nil
	}
	for _, f := range found {
		report(f)
	}
	return err
}

func (l *Locker) examine(f findings) {
	var refused *folderError
	switch err := checkPath(l.dir); {
	case errors.As(err, &refused):
		f(driver.Finding{Subject: subjectMode, Level: driver.LevelWrong,
			Detail: driver.ErrorText(err), Remedy: "Correct it as the one who owns it, or use another folder:", Command: refused.fix})
		return
	case err != nil:
		f(driver.Finding{Subject: subjectFolder, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
			Remedy: "Let the user of this process enter every folder on the way, or use another folder."})
		return
	}
	info, err := os.Stat(l.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f(driver.Finding{Subject: subjectFolder, Level: driver.LevelDoubtful,
			Detail:  l.dir + " does not exist, so there are no locks yet",
			Remedy:  "Correct the URL, or make the folder (the first program that uses it does so):",
			Command: "mkdir -p -m 700 " + quoteShell(l.dir)})
		return
	case err != nil || !info.IsDir():
		if err == nil {
			err = errors.New("it is not a folder")
		}
		f(driver.Finding{Subject: subjectFolder, Level: driver.LevelWrong, Detail: l.dir + ": " + driver.ErrorText(err),
			Remedy: "Use another folder, or correct this one."})
		return
	}
	f.OK(subjectFolder, "%s exists", l.dir)
	l.examineMode(f, info)
	l.examineFileSystem(f)
	l.examineClock(f)
	l.examineMachine(f)
	l.examineWatch(f)
	l.examineFiles(f)
}

// examineWatch watches the folder for a moment.
func (l *Locker) examineWatch(f findings) {
	trial, err := openWatch(l.dir, func(string, bool) {}, func() {})
	if err != nil {
		remedy, command := watchRemedy(err)
		f(driver.Finding{Subject: subjectWatch, Level: driver.LevelDoubtful,
			Detail:  "waiters poll, because the folder cannot be watched: " + driver.ErrorText(explainWatch(err)),
			Remedy:  remedy,
			Command: command})
		return
	}
	trial.close()
	f.OK(subjectWatch, "a release wakes the waiters of other processes")
}

// examineFiles looks for files of other programs.
func (l *Locker) examineFiles(f findings) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		f(driver.Finding{Subject: subjectForeign, Level: driver.LevelWrong, Detail: driver.ErrorText(err),
			Remedy: "Let the user of this process read the folder."})
		return
	}
	foreign, example := 0, ""
	for _, entry := range entries {
		if !isOurs(entry.Name()) {
			if foreign++; foreign == 1 {
				example = entry.Name()
			}
		}
	}
	if foreign > 0 {
		which := "1 file is not Holdfast's: "
		if foreign > 1 {
			which = fmt.Sprintf("%d files are not Holdfast's, such as ", foreign)
		}
		f(driver.Finding{Subject: subjectForeign, Level: driver.LevelDoubtful,
			Detail: which + driver.Quote(example) + "; another program that works in the folder may remove lock files",
			Remedy: "Give the locks a folder of their own."})
		return
	}
	f.OK(subjectForeign, "none among %d files", len(entries))
}

// isOurs reports whether a file may be the driver's.
func isOurs(name string) bool {
	if strings.TrimSuffix(strings.TrimSuffix(name, ".lock"), ".tmp") == prunedFile {
		return true
	}
	for _, ending := range []string{".json", ".lock", ".tmp"} {
		if base, ok := strings.CutSuffix(name, ending); ok && isStem(base) {
			return true
		}
	}
	return false
}

// RemoveProbe implements [driver.Checker].
func (l *Locker) RemoveProbe(ctx context.Context, name string) error {
	return l.call(ctx, "remove", name, driver.ValidateName(name, limits), func(ctx context.Context) error {
		base := filepath.Join(l.dir, stem(name))
		if !exists(base + ".json") {
			return nil
		}
		unlock, err := l.lockFile(ctx, base+".lock")
		if err != nil {
			return err
		}
		rec, err := l.load(ctx, base+".json", name)
		none := errors.Is(err, fs.ErrNotExist)
		if err == nil {
			moment, clockErr := l.now()
			if clockErr != nil || rec.Held(moment) || len(rec.Data) > 0 {
				unlock()
				return clockErr
			}
			// Promise 3: the next token comes from the wall clock, which must have passed this one.
			if rec.Token >= uint64(max(moment.Wall.UnixMilli(), 0)) {
				unlock()
				return nil
			}
			err = os.Remove(base + ".json")
		}
		if err != nil && !none {
			unlock()
			return err
		}
		_ = os.Remove(base + ".tmp") // a crash may have left it
		return removeLock(base+".lock", unlock)
	})
}

// watchRemedy says what helps if the folder cannot be watched.
func watchRemedy(err error) (remedy, command string) {
	if errors.Is(err, fs.ErrPermission) {
		return "Let the user of this process read the folder, or run the process as the folder's owner.", ""
	}
	return "Raise the limit that the message names, or end programs that use it up:", watchCommand(err)
}
