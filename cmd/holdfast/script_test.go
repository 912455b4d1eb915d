//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/mongotest"
	"github.com/holdfast-go/holdfast/internal/serverprocess"
)

func TestMain(m *testing.M) {
	// Run as a subprocess under its own name the test binary is the command itself.
	testscript.Main(withMongo{m}, map[string]func(){"holdfast": main, guardianName: main})
}

// withMongo stops the servers that tests have started.
type withMongo struct{ *testing.M }

func (m withMongo) Run() int {
	heedSignals()
	return serverprocess.Run(m.M)
}

// heedSignals has the processes that tests start heed the signals that these tests ignore:
// nohup ignores SIGHUP, a shell SIGINT and SIGQUIT of a job in the background, and
// every process inherits that. A signal that is caught here is not ignored there.
func heedSignals() {
	for _, sig := range endingSignals {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// gorace spares each process the second that the race detector sleeps at its end.
const gorace = "atexit_sleep_ms=0"

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
			"everyone": cmdEveryone, "guardian": cmdGuardian, "stopped": cmdStopped,
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
		for range 5 {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-j.done:
				return
			case <-time.After(sameRequest + hearWithin): // the next one is another request
			}
		}
		_ = cmd.Process.Kill()
		<-j.done
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
	if neg || len(args) != 2 || numbers[args[0]] == 0 {
		ts.Fatalf("usage: signal NAME PIDFILE")
	}
	ts.Check(syscall.Kill(pid(ts, args[1]), numbers[args[0]]))
}

var numbers = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "USR1": syscall.SIGUSR1, "QUIT": syscall.SIGQUIT}

// everyone NAME PIDFILE sends a signal to a process and all that descend from it, as a
// service manager does.
func cmdEveryone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || numbers[args[0]] == 0 {
		ts.Fatalf("usage: everyone NAME PIDFILE")
	}
	family := descendants(ts, pid(ts, args[1]))
	for _, p := range family {
		_ = syscall.Kill(p.id, numbers[args[0]]) // it may have ended
	}
}

// guardian PIDFILE FILE writes the process ID of a holdfast's guardian to a file.
func cmdGuardian(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: guardian PIDFILE FILE")
	}
	found := 0
	await(ts, func() bool {
		for _, p := range descendants(ts, pid(ts, args[0])) {
			if p.name == guardianName {
				found = p.id
			}
		}
		return found != 0
	}, func() string { return "there is no guardian" })
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strconv.Itoa(found)), 0o600))
}

// stopped PIDFILE waits until a process is stopped.
func cmdStopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stopped PIDFILE")
	}
	id := pid(ts, args[0])
	await(ts, func() bool {
		return slices.ContainsFunc(processes(ts), func(p processInfo) bool { return p.id == id && p.state == 'T' })
	}, func() string { return fmt.Sprintf("process %d is not stopped", id) })
}

// descendants lists a process and all that descend from it, parents first.
func descendants(ts *testscript.TestScript, root int) []processInfo {
	all := processes(ts)
	family := []processInfo{{id: root}}
	for i := 0; i < len(family); i++ {
		for _, p := range all {
			if p.parent == family[i].id {
				family = append(family, p)
			}
		}
	}
	return family
}

type processInfo struct {
	id, parent int
	state      byte // 'T' for stopped, 'Z' for ended and not reaped
	name       string
}

// processes lists the system's, as /proc shows them or, where there is none, ps does.
func processes(ts *testscript.TestScript) (all []processInfo) {
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	ts.Check(err)
	var list strings.Builder
	for _, dir := range dirs {
		stat, _ := os.ReadFile(dir) // it may have ended
		before, after, ok := strings.Cut(string(stat), "(")
		if end := strings.LastIndexByte(after, ')'); ok && end >= 0 {
			name := strings.ReplaceAll(after[:end], " ", "_")
			fields := strings.Fields(after[end+1:])
			fmt.Fprintln(&list, before, fields[1], fields[0], name)
		}
	}
	if len(dirs) == 0 {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=,comm=").Output()
		ts.Check(err)
		list.Write(out)
	}
	for line := range strings.Lines(list.String()) {
		var p processInfo
		var state string
		if _, err := fmt.Sscan(line, &p.id, &p.parent, &state, &p.name); err == nil {
			p.state, p.name = state[0], filepath.Base(p.name)
			all = append(all, p)
		}
	}
	return all
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
			if !alive(ts, id) {
				ts.Fatalf("process %d (%s) is gone", id, file)
			}
			continue
		}
		await(ts, func() bool { return !alive(ts, id) }, func() string { return fmt.Sprintf("process %d (%s) is alive", id, file) })
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
func alive(ts *testscript.TestScript, pid int) bool {
	return slices.ContainsFunc(processes(ts), func(p processInfo) bool { return p.id == pid && p.state != 'Z' })
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
