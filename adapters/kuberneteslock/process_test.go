package kuberneteslock

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/drivers/file"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

const folderVariable = "HOLDFAST_ELECTOR_FOLDER"

// processLease is the LeaseDuration of the electors in child processes.
const processLease = 3 * time.Second

func TestMain(m *testing.M) {
	folder := os.Getenv(folderVariable)
	if folder == "" {
		os.Exit(serverprocess.Run(m))
	}
	if err := electorProgram(folder); err != nil {
		log.Fatal(err)
	}
}

// electorProgram campaigns until the process is killed or leads no more, and writes its
// leaderships into a file.
func electorProgram(folder string) error {
	locker, err := file.New(filepath.Join(folder, "locks"))
	if err != nil {
		return err
	}
	lock, err := New(locker, "operator", fmt.Sprint(os.Getpid()))
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	defer cancel()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: processLease, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				f, err := os.OpenFile(filepath.Join(folder, "journal"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err == nil {
					_, err = fmt.Fprintf(f, "%d %d\n", os.Getpid(), lock.Token())
				}
				if err != nil {
					failed <- err
					cancel()
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

type leadership struct {
	process int
	token   uint64
}

func journal(t *testing.T, folder string) (found []leadership) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "journal"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var one leadership
		if _, err := fmt.Sscan(line, &one.process, &one.token); err == nil {
			found = append(found, one)
		}
	}
	return found
}

func awaitLeaderships(t *testing.T, folder string, n int) []leadership {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found := journal(t, folder); len(found) >= n {
			return found
		}
	}
	t.Fatalf("no %d leaderships within a minute", n)
	return nil
}

// Of two processes one leads. After a kill the other leads, when the lease has ended.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	processes := map[int]*exec.Cmd{}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), folderVariable+"="+folder)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		processes[cmd.Process.Pid] = cmd
	}
	first := awaitLeaderships(t, folder, 1)[0]
	time.Sleep(2 * processLease) // the lease is renewed
	if all := journal(t, folder); len(all) != 1 {
		t.Fatalf("leaderships without a crash: %v", all)
	}
	if err := processes[first.process].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	second := awaitLeaderships(t, folder, 2)[1]
	if second.process == first.process || second.token <= first.token {
		t.Errorf("%v took over from %v", second, first)
	}
	// The last renewal was sent at most about one RetryPeriod before the kill.
	if waited := time.Since(killed); waited < processLease/2 {
		t.Errorf("the other process leads %v after the kill, with a lease of %v", waited, processLease)
	}
}
