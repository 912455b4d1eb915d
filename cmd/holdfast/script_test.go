//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/signals"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	// Started under one of these names, the test binary is the command itself.
	testscript.Main(withMongo{m}, map[string]func(){"holdfast": main, child.GuardianName: main, panickingTop: runPanickingTop,
		becomesRoot: runBecomesRoot})
}

// withMongo stops the servers that the tests have started.
type withMongo struct{ *testing.M }

func (m withMongo) Run() int {
	unignoreSignals()
	return serverprocess.Run(m.M)
}

// unignoreSignals catches the ending signals that this process ignores, so that the processes
// that the tests start do not inherit that. nohup ignores SIGHUP, and a shell ignores SIGINT
// and SIGQUIT for a job in the background.
func unignoreSignals() {
	for _, sig := range signals.Ending {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

// gorace configures the race detector not to sleep for a second at the end of each process.
const gorace = "atexit_sleep_ms=0"

// runScripts runs the scripts of a folder, with more variables if they are given as NAME=VALUE.
func runScripts(t *testing.T, dir, backend string, variables ...string) {
	t.Helper()
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", gorace)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", "")
			env.Setenv("HOLDFAST_BACKEND", strings.ReplaceAll(backend, "$WORK", env.WorkDir))
			env.Vars = append(env.Vars, variables...)
			env.Values["jobs"] = map[string]*job{}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "start": cmdStart, "ended": cmdEnded, "signal": cmdSignal,
			"signaltree": cmdSignalTree, "guardian": cmdGuardian, "stopped": cmdStopped,
			"until": cmdUntil, "gone": cmdGone, "greater": cmdGreater, "within": cmdWithin, "ask": cmdAsk, "untilready": cmdUntilReady,
			"connect": cmdConnect,
		},
	})
}

// condition evaluates [namespaces]: a process can be process 1 of a namespace, as in a container.
func condition(name string) (bool, error) {
	if name != "namespaces" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true").Run() == nil, nil
}

func TestScripts(t *testing.T) { runScripts(t, "testdata", "file:$WORK/locks") }

func TestScriptsOnMongoDB(t *testing.T) {
	serverprocess.Long(t, "waits for leases on a real server to end")
	runScripts(t, filepath.Join("testdata", "mongo"), mongotest.WithDatabase(mongotest.URI(t), "holdfast_command"))
}

func TestScriptsOnPostgreSQL(t *testing.T) {
	runScripts(t, filepath.Join("testdata", "postgres"), postgrestest.URL(t))
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

// start NAME COMMAND… starts a command. Its output goes to NAME.out and NAME.err, its
// process ID to NAME.pid.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME COMMAND...")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	// The same variables as exec sets; testscript has no way to list them.
	cmd.Env = append(os.Environ(), "GORACE="+gorace, "HOLDFAST_BACKEND="+ts.Getenv("HOLDFAST_BACKEND"), "HOME="+ts.Getenv("HOME"),
		"XDG_STATE_HOME=")
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
		// SIGTERM first, so that holdfast ends its command too; a failed script may
		// have left it stopped.
		_ = cmd.Process.Signal(syscall.SIGCONT)
		for range 5 {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-j.done:
				return
			case <-time.After(child.SameRequestWindow + child.ForwardDelay): // the next one is a new request
			}
		}
		_ = cmd.Process.Kill()
		<-j.done
	})
}

// ended NAME CODE waits until a started command has ended. Its exit code must be CODE, which
// is -1 if a signal ended it.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE")
	}
	j := jobs(ts)[args[0]]
	select {
	case <-j.done:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended within %v; its messages:\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	check(ts, args[1], j.err)
}

// within NAME DURATION checks that a started command has ended in less time than that.
func cmdWithin(ts *testscript.TestScript, neg bool, args []string) {
	j, limit := jobs(ts)[args[0]], duration(ts, args[1])
	if took := j.ended.Sub(j.started); neg != (took >= limit) {
		ts.Fatalf("%s took %v", args[0], took)
	}
}

// signal NAME PIDFILE sends a signal to the process whose ID a file holds. STOP waits until the process is stopped.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || signalNumbers[args[0]] == 0 {
		ts.Fatalf("usage: signal NAME PIDFILE")
	}
	id := pid(ts, args[1])
	if args[0] == "STOP" {
		stopBetweenRequests(ts, id)
		return
	}
	ts.Check(syscall.Kill(id, signalNumbers[args[0]]))
}

// signaltree NAME PIDFILE sends a signal to a process and all its descendants, as a service
// manager does. Each holdfast among them is stopped meanwhile, and finds the signal together with
// the report of its guardian, even if this process is paused between two signals.
func cmdSignalTree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || signalNumbers[args[0]] == 0 {
		ts.Fatalf("usage: signaltree NAME PIDFILE")
	}
	tree := descendants(ts, pid(ts, args[1]))
	supervisors := slices.DeleteFunc(slices.Clone(tree), func(p processInfo) bool { return p.name != "holdfast" })
	for _, p := range supervisors {
		ts.Check(syscall.Kill(p.id, syscall.SIGSTOP))
		awaitStopped(ts, p.id)
	}
	for _, p := range tree {
		_ = syscall.Kill(p.id, signalNumbers[args[0]]) // it may have ended
	}
	awaitReports(ts, tree)
	for _, p := range slices.Backward(supervisors) { // a child goes on before its parent
		_ = syscall.Kill(p.id, syscall.SIGCONT)
	}
}

// awaitReports waits until each guardian among the processes has written a report that its holdfast, which is stopped, has not read.
func awaitReports(ts *testscript.TestScript, tree []processInfo) {
	for _, p := range tree {
		if p.name != child.GuardianName {
			continue
		}
		reports := fmt.Sprintf("/proc/%d/fd/4", p.id) // its end of the pipe between them
		fd, err := unix.Open(reports, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil { // it has ended, or there is no /proc
			time.Sleep(time.Second)
			continue
		}
		await(ts, func() bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // it is small
			return n > 0 && err == nil
		}, func() string { return fmt.Sprintf("guardian %d reports nothing", p.id) })
		_ = unix.Close(fd)
	}
}

// guardian PIDFILE FILE writes the process ID of a holdfast's guardian to a file. On Linux it waits until the guardian, and those of
// holdfasts below it, have their first order: from then on they kill the group and release the lock.
func cmdGuardian(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: guardian PIDFILE FILE")
	}
	found := 0
	await(ts, func() bool {
		found = 0
		for _, p := range descendants(ts, pid(ts, args[0])) {
			if p.name != child.GuardianName {
				continue
			}
			if group, err := syscall.Getpgid(p.id); runtime.GOOS == "linux" && (err != nil || group == p.id) {
				return false // it is not in the command's group yet
			}
			if found == 0 { // parents are first
				found = p.id
			}
		}
		return found != 0
	}, func() string { return "there is no guardian with an order" })
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strconv.Itoa(found)), 0o600))
}

// stopped PIDFILE waits until a process is stopped.
func cmdStopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stopped PIDFILE")
	}
	awaitStopped(ts, pid(ts, args[0]))
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

// gone PIDFILE… waits until the processes have ended. Negated, it checks that they have not.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		id := pid(ts, file)
		if neg {
			if !alive(ts.Check, id) {
				ts.Fatalf("process %d (%s) is gone", id, file)
			}
			continue
		}
		await(ts, func() bool { return !alive(ts.Check, id) }, func() string { return fmt.Sprintf("process %d (%s) is alive", id, file) })
	}
}

// greater A B checks that the number in file A is greater than the one in file B.
func cmdGreater(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: greater A B")
	}
	if a, b := number(ts, args[0]), number(ts, args[1]); a <= b {
		ts.Fatalf("%d is not greater than %d", a, b)
	}
}

// servedAddress is in what "holdfast serve" reports.
var servedAddress = regexp.MustCompile(`at http://([^/]+)/`)

// ask NAME PATH [HEADER VALUE]... asks a page that was started under a name. The answer goes to the
// file "answer".
func cmdAsk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args)%2 != 0 {
		ts.Fatalf("usage: ask NAME PATH [HEADER VALUE]...")
	}
	body, err := answerTo(ts, args)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), body, 0o600))
}

// answerTo sends the request of ask.
func answerTo(ts *testscript.TestScript, args []string) ([]byte, error) {
	address := servedAddress.FindStringSubmatch(ts.ReadFile(args[0] + ".err"))
	if address == nil {
		ts.Fatalf("%s has no address", args[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address[1]+args[1], http.NoBody)
	ts.Check(err)
	for i := 2; i < len(args); i += 2 {
		request.Header.Set(args[i], args[i+1])
		if args[i] == "Host" {
			request.Host = args[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return io.ReadAll(answer.Body)
}

// untilready NAME waits until a process that was started under a name answers that it is ready.
func cmdUntilReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: untilready NAME")
	}
	await(ts, func() bool {
		cmdAsk(ts, false, []string{args[0], "/readyz"})
		return ts.ReadFile("answer") == "ok\n"
	}, func() string { return args[0] + " is not ready: " + ts.ReadFile("answer") })
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

func await(ts *testscript.TestScript, ok func() bool, failure func() string) {
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			ts.Fatalf("%s", failure())
		}
		time.Sleep(10 * time.Millisecond)
	}
}
