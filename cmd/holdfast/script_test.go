//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func TestMain(m *testing.M) {
	// Run as a subprocess under its own name the test binary is the command itself.
	testscript.Main(withMongo{m}, map[string]func(){"holdfast": main})
}

// withMongo stops the servers that tests have started.
type withMongo struct{ *testing.M }

func (m withMongo) Run() int { return mongotest.Run(m.M) }

// gorace spares each process the second that the race detector sleeps at its end.
const gorace = "atexit_sleep_ms=0"

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

func scripts(t *testing.T, dir, backend string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", gorace)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", "")
			env.Setenv("HOLDFAST_BACKEND", strings.ReplaceAll(backend, "$WORK", env.WorkDir))
			env.Values["jobs"] = map[string]*job{}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "start": cmdStart, "ended": cmdEnded, "signal": cmdSignal,
			"until": cmdUntil, "gone": cmdGone, "greater": cmdGreater, "sooner": cmdSooner,
		},
	})
}

// condition: [namespaces] is where a process may be process 1 of a container.
func condition(name string) (bool, error) {
	if name != "namespaces" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true").Run() == nil, nil
}

func TestScripts(t *testing.T) { scripts(t, "testdata", "file:$WORK/locks") }

func TestScriptsOnMongoDB(t *testing.T) {
	scripts(t, filepath.Join("testdata", "mongo"), strings.Replace(mongotest.URI(t), "/?", "/holdfast_command?", 1))
}

// job is a process that a script has started.
type job struct {
	cmd     *exec.Cmd
	done    chan struct{}
	err     error
	started time.Time
	ended   time.Time
}

// code N COMMAND… runs a command that must end with exit code N.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	check(ts, args[0], ts.Exec(args[1], args[2:]...))
}

// start NAME COMMAND… starts a command; its output goes to NAME.out and NAME.err,
// its process ID to NAME.pid.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME COMMAND...")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	// Same variables as exec gives; testscript has no other way to list them.
	cmd.Env = append(os.Environ(), "GORACE="+gorace, "HOLDFAST_BACKEND="+ts.Getenv("HOLDFAST_BACKEND"), "HOME="+ts.Getenv("HOME"), "XDG_STATE_HOME=")
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	defer func() { _ = out.Close() }()
	errs, err := os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	defer func() { _ = errs.Close() }()
	cmd.Stdout, cmd.Stderr = out, errs
	ts.Check(cmd.Start())
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600))
	j := &job{cmd: cmd, done: make(chan struct{}), started: time.Now()}
	jobs(ts)[args[0]] = j
	go func() {
		j.err, j.ended = cmd.Wait(), time.Now()
		close(j.done)
	}()
	ts.Defer(func() {
		ts.Logf("[%s.err]\n%s", args[0], ts.ReadFile(args[0]+".err"))
		select {
		case <-j.done:
			return
		default:
		}
		// Asked first, so that it ends its command, too; a script that failed may
		// have left it stopped.
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-j.done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-j.done
		}
	})
}

// ended NAME CODE waits for what was started; it must end with that code, which is
// -1 if a signal ended it.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE")
	}
	j := jobs(ts)[args[0]]
	select {
	case <-j.done:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended within %v; it said:\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	check(ts, args[1], j.err)
}

// sooner NAME DURATION: what was started has ended in less than that.
func cmdSooner(ts *testscript.TestScript, neg bool, args []string) {
	j, limit := jobs(ts)[args[0]], duration(ts, args[1])
	if took := j.ended.Sub(j.started); neg != (took >= limit) {
		ts.Fatalf("%s took %v", args[0], took)
	}
}

// signal NAME PIDFILE sends a signal to the process whose ID a file holds.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	numbers := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
		"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "USR1": syscall.SIGUSR1, "QUIT": syscall.SIGQUIT}
	if neg || len(args) != 2 || numbers[args[0]] == 0 {
		ts.Fatalf("usage: signal NAME PIDFILE")
	}
	ts.Check(syscall.Kill(pid(ts, args[1]), numbers[args[0]]))
}

// until FILE PATTERN waits until a file's contents match.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until FILE PATTERN")
	}
	pattern := regexp.MustCompile("(?m)" + args[1])
	var text []byte
	await(ts, func() bool {
		text, _ = os.ReadFile(ts.MkAbs(args[0]))
		return pattern.Match(text)
	}, func() string { return fmt.Sprintf("%s does not match %s:\n%s", args[0], args[1], text) })
}

// gone PIDFILE… waits until the processes have ended. Negated: they are alive.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		id := pid(ts, file)
		if neg {
			if !alive(id) {
				ts.Fatalf("process %d (%s) is gone", id, file)
			}
			continue
		}
		await(ts, func() bool { return !alive(id) }, func() string { return fmt.Sprintf("process %d (%s) is alive", id, file) })
	}
}

// greater A B: the number in file A is greater than that in file B.
func cmdGreater(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: greater A B")
	}
	if a, b := number(ts, args[0]), number(ts, args[1]); a <= b {
		ts.Fatalf("%d is not greater than %d", a, b)
	}
}

func check(ts *testscript.TestScript, want string, err error) {
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want != strconv.Itoa(got) {
		ts.Fatalf("exit code %d, not %s", got, want)
	}
}

func jobs(ts *testscript.TestScript) map[string]*job {
	return ts.Value("jobs").(map[string]*job)
}

func number(ts *testscript.TestScript, file string) int {
	n, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(file)))
	ts.Check(err)
	return n
}

func pid(ts *testscript.TestScript, file string) int {
	n := number(ts, file)
	if n <= 1 {
		ts.Fatalf("%s holds no process ID: %d", file, n)
	}
	return n
}

func duration(ts *testscript.TestScript, s string) time.Duration {
	d, err := time.ParseDuration(s)
	ts.Check(err)
	return d
}

// alive reports whether a process runs; one that only waits to be reaped does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func await(ts *testscript.TestScript, ok func() bool, failure func() string) {
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			ts.Fatalf("%s", failure())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
