package integration

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// processTTL is the TTL of locks in child processes: a killed one keeps others waiting for so
// long.
const processTTL = 3 * time.Second

// programs are what child processes can do. Each runs until the process is killed, or returns
// when its work is done.
var programs = map[string]func(client *holdfast.Client, journal journal) error{
	"gocron-locker":  gocronLockerProgram,
	"gocron-elector": gocronElectorProgram,
	"cron":           cronProgram,
	"certmagic":      certmagicProgram,
	"migrate":        migrateProgram,
	"goose":          gooseProgram,
	"redsync":        redsyncProgram,
}

const programVariable, folderVariable = "HOLDFAST_ADAPTER_PROGRAM", "HOLDFAST_ADAPTER_FOLDER"

func TestMain(m *testing.M) {
	program := os.Getenv(programVariable)
	if program == "" {
		_ = os.Setenv("PEBBLE_VA_NOSLEEP", "1") // the ACME server would wait before it checks a challenge
		os.Exit(serverprocess.Run(m))
	}
	folder := os.Getenv(folderVariable)
	locker, err := file.New(filepath.Join(folder, "locks"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := holdfast.New(locker, holdfast.WithTTL(processTTL), holdfast.WithPollInterval(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if err := programs[program](client, journal{filepath.Join(folder, "journal")}); err != nil {
		log.Fatal(err)
	}
	if err := client.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// process is a child process.
type process struct {
	*exec.Cmd
	id string
}

// start starts a child process, which is killed when the test ends.
func start(t *testing.T, program, folder string) process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), programVariable+"="+program, folderVariable+"="+folder)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return process{cmd, fmt.Sprint(cmd.Process.Pid)}
}

// startTwo starts two processes, and returns them by their IDs, with their journal.
func startTwo(t *testing.T, program, folder string) (journal, map[string]process) {
	t.Helper()
	processes := map[string]process{}
	for range 2 {
		p := start(t, program, folder)
		processes[p.id] = p
	}
	return journal{filepath.Join(folder, "journal")}, processes
}

// kill ends the process with no chance to release anything.
func (p process) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
}

// journal is a file that the child processes append to: what happened, the process, the token.
type journal struct{ path string }

func (j journal) write(ctx context.Context, what string) error {
	token, _ := holdfast.TokenFromContext(ctx)
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %d %d\n", what, os.Getpid(), token)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// writeLoss writes that the work has seen the loss of its lock, if that has ended its context.
func (j journal) writeLoss(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
		return nil
	}
	return j.write(ctx, "lost")
}

type entry struct {
	what, process string
	token         uint64
}

func (j journal) read(t *testing.T) (entries []entry) {
	t.Helper()
	text, err := os.ReadFile(j.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e entry
		if _, err := fmt.Sscan(line, &e.what, &e.process, &e.token); err == nil {
			entries = append(entries, e)
		}
	}
	return entries
}

// await waits until the journal has n entries.
func (j journal) await(t *testing.T, n int) []entry {
	t.Helper()
	var entries []entry
	eventually(t, fmt.Sprintf("%d entries of the journal", n), func() bool {
		entries = j.read(t)
		return len(entries) >= n
	})
	return entries
}

// takesOver starts two child processes, kills the one whose work has begun, and checks that the
// other begins only after the lease of the first, and under a higher token if there are tokens.
func takesOver(t *testing.T, program string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	journal, processes := startTwo(t, program, folder)
	first := journal.await(t, 1)[0]
	time.Sleep(processTTL) // the lease is renewed: the other process waits longer than a TTL
	if all := journal.read(t); len(all) > 1 {
		t.Fatalf("two processes work at the same time: %v", all)
	}
	processes[first.process].kill(t)
	killed := time.Now()
	second := journal.await(t, 2)[1]
	waited := time.Since(killed)
	if second.process == first.process || first.token != 0 && second.token <= first.token {
		t.Errorf("%v took over from %v", second, first)
	}
	// The lease was renewed a third of the TTL before the kill at the earliest.
	if waited < processTTL/3 || waited > 3*processTTL {
		t.Errorf("the other process took over after %v, with a TTL of %v", waited, processTTL)
	}
	return folder
}

var eventually = locktest.Eventually

// newClient makes a client that shares the store's locks with the other clients, as another
// process does.
func newClient(t *testing.T, store *memory.Store, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	opts = append([]holdfast.ClientOption{holdfast.WithTTL(3 * time.Second), holdfast.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	client, err := holdfast.New(store.Locker(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := client.Shutdown(ctx); err != nil && !strings.Contains(err.Error(), "closed") {
			t.Errorf("Shutdown: %v", err)
		}
	})
	return client
}

func isFree(t *testing.T, client *holdfast.Client, name string) bool {
	t.Helper()
	record, err := client.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return record.State == driver.StateFree
}
