//go:build unix

package endtoend

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/backendtest"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
	"github.com/holdfast-go/holdfast/test/kubernetestest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mysqltest"
	"github.com/holdfast-go/holdfast/test/natstest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/redistest"
	"github.com/holdfast-go/holdfast/test/s3test"
)

// backends returns a URL for each backend. With "mem:" each process has its own, and there is no contention.
func backends(t *testing.T) map[string]string {
	all := map[string]string{}
	for scheme, url := range backendtest.Backends(driver.ReachProcess) {
		all[scheme] = url(t)
	}
	return all
}

// modules are the drivers that are modules of their own, by their folders.
func modules(t *testing.T) map[string]func(testing.TB) string {
	all := map[string]func(testing.TB) string{"postgres": postgrestest.URL}
	if !testing.Short() { // these are drivers of the full build, which is large
		all["kubernetes"], all["redis"], all["mysql"] = kubernetestest.URL, redistest.URL, mysqltest.URL
		all["aws/s3"], all["aws/dynamodb"] = s3test.URL, dynamodbtest.URL
		if natstest.Available() {
			all["nats"] = natstest.URL
		} else {
			t.Logf("without NATS: neither %s nor %s is set; \"make verify PARTS=long\" builds a server", natstest.EnvProgram, natstest.EnvURL)
		}
	}
	return all
}

// withDrivers makes a file for "go build -overlay", with which the examples import all drivers, also those that are modules of their own.
// The program in the README is one of them.
func withDrivers(t *testing.T) string {
	text := "package main\nimport _ \"github.com/holdfast-go/holdfast/internal/alldrivers\"\n" // the README imports one
	for _, folder := range slices.Sorted(maps.Keys(modules(t))) {
		text += fmt.Sprintf("import _ %q\n", "github.com/holdfast-go/holdfast/drivers/"+folder)
	}
	imports, overlay := filepath.Join(t.TempDir(), "imports.go"), filepath.Join(t.TempDir(), "overlay.json")
	main, err := filepath.Abs("../../examples/readme/main.go")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{main: readmeProgram(t)}
	for _, example := range []string{"worker", "leases", "readme"} {
		added, err := filepath.Abs("../../examples/" + example + "/zz_imports.go")
		if err != nil {
			t.Fatal(err)
		}
		replace[added] = imports
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err := errors.Join(err, os.WriteFile(imports, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	return overlay
}

const examples = "github.com/holdfast-go/holdfast/examples/"

const shortestTTL = "15s" // of those that every backend allows

// The same programs, the command, the README's and two examples, run on every backend and only the URL changes.
// Exit codes, the handoff on SIGTERM and the takeover after SIGKILL are as they should be. Kubernetes, S3 and DynamoDB are servers in
// this process; NATS is left out where no program of it is named, as "make verify" does.
func TestOneProgramOnEveryBackend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := backends(t)
	for folder, url := range modules(t) {
		all[folder] = url(t)
	}
	tags := ""
	if !testing.Short() {
		tags = "full"
	}
	for _, build := range [][]string{
		{"-tags", tags, "."},
		{"-overlay", withDrivers(t), examples + "worker", examples + "leases", examples + "readme"},
	} {
		arguments := append([]string{"-C", "../../cmd/holdfast", "build", "-o", dir}, build...) // its module has all drivers
		if out, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	for name, url := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := func(args ...string) *program {
				p := newProgram(t, filepath.Join(dir, "holdfast"), args...)
				p.cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+url)
				return p
			}
			readme := func() *program {
				p := newProgram(t, filepath.Join(dir, "readme"))
				p.cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+url)
				return p.start()
			}
			worker := func() *program { return newProgram(t, filepath.Join(dir, "worker"), "-backend", url).start() }
			leases := func() *program {
				return newProgram(t, filepath.Join(dir, "leases"), "-backend", url, "north", "south").start()
			}
			if d, _ := driver.Describe(url); d.Reach == driver.ReachProcess { // no other process sees the lock
				refused := command("run", "once", "--", "true").start()
				refused.await("is the memory of one process")
				if code := refused.wait(); code != 2 {
					t.Errorf("the command on mem: ended with code %d", code)
				}
				for output, p := range map[string]*program{"mine, token ": readme(), "step 2 under token ": worker(), `note 2 of "south"`: leases()} {
					p.await(output)
					p.signal(syscall.SIGTERM)
					if code := p.wait(); code != 0 {
						t.Errorf("the program that writes %q ended with code %d", output, code)
					}
				}
				return
			}
			once := command("run", "once", "--", "sh", "-c", "echo token $HOLDFAST_TOKEN; exit 7").start()
			once.await("token ")
			if code := once.wait(); code != 7 {
				t.Errorf("exit code %d, want the command's own", code)
			}
			t.Run("command", func(t *testing.T) { t.Parallel(); commandHandsOver(t, command) })
			t.Run("readme", func(t *testing.T) { t.Parallel(); readmeHandsOver(t, readme) })
			t.Run("worker", func(t *testing.T) { t.Parallel(); workersTakeOver(t, worker) })
			t.Run("leases", func(t *testing.T) { t.Parallel(); leasesAreHandedOver(t, leases) })
		})
	}
}

func commandHandsOver(t *testing.T, command func(args ...string) *program) {
	run := func(flags ...string) *program {
		args := append(append([]string{"run", "--ttl", shortestTTL}, flags...), "job", "--", "sh", "-c",
			"echo token $HOLDFAST_TOKEN; exec sleep 1000")
		return command(args...).start()
	}
	first := run()
	last := first.token()
	expectToken := func(p *program, when string) {
		t.Helper()
		token := p.token()
		if token <= last {
			t.Errorf("%s: token %d after %d", when, token, last)
		}
		last = token
	}
	if code := run("--try").wait(); code != 75 {
		t.Errorf("--try while it is held: exit code %d, want 75", code)
	}
	second := run()
	second.await("waiting for")
	first.signal(syscall.SIGTERM)
	expectToken(second, "after SIGTERM")
	if code := first.wait(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("the first ended with %d", code)
	}
	third := run()
	third.await("waiting for")
	second.signal(syscall.SIGKILL)
	expectToken(third, "after SIGKILL")
	third.signal(syscall.SIGTERM)
	third.wait()
}

func workersTakeOver(t *testing.T, worker func() *program) {
	leader := worker()
	leader.await("step 1 under token ")
	follower := worker()
	follower.await("holder seen")
	leader.signal(syscall.SIGKILL)
	follower.await("step 1 under token ")
	if strings.Contains(leader.output.String(), "lost") {
		t.Error("the leader lost its lock before it was killed")
	}
	follower.signal(syscall.SIGTERM)
	if code := follower.wait(); code != 0 {
		t.Errorf("the worker's exit code is %d", code)
	}
}

func leasesAreHandedOver(t *testing.T, leases func() *program) {
	first := leases()
	for _, name := range []string{"north", "south"} {
		first.await(fmt.Sprintf("note 2 of %q", name))
	}
	second := leases()
	second.await("holder seen")
	first.signal(syscall.SIGTERM)
	for _, name := range []string{"north", "south"} {
		first.await(fmt.Sprintf("released %q", name))
		second.await(fmt.Sprintf("of %q", name))
	}
	if strings.Contains(second.output.String(), "note 1 of") {
		t.Error("the notes of the previous holder are gone")
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}

// program is a process whose output the test reads.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{}
	output locktest.Log
}

func newProgram(t *testing.T, path string, args ...string) *program {
	return &program{t: t, cmd: exec.Command(path, args...), ended: make(chan struct{})}
}

func (p *program) start() *program {
	p.t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = writer.Close() // the process has its own
	go func() {
		for s := bufio.NewScanner(reader); s.Scan(); {
			fmt.Fprintln(&p.output, s.Text())
		}
	}()
	go func() {
		_ = p.cmd.Wait() // the method wait returns the exit code
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended
		<-p.ended
		_ = reader.Close()
	})
	return p
}

// backendTimeout bounds every wait for a backend. After an Azure lease has expired, others may have to
// wait for up to a minute.
const backendTimeout = 2 * time.Minute

// await waits for a text in the output and returns the rest of its line.
func (p *program) await(text string) string {
	p.t.Helper()
	for end := time.Now().Add(backendTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, after, found := strings.Cut(p.output.String(), text); found {
			line, _, _ := strings.Cut(after, "\n")
			return line
		}
	}
	p.t.Fatalf("the output lacks %q:\n%s", text, &p.output)
	return ""
}

// token waits for the token that the program writes.
func (p *program) token() uint64 {
	p.t.Helper()
	n, err := strconv.ParseUint(p.await("\ntoken "), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(backendTimeout):
		p.t.Fatalf("the program did not end; its output:\n%s", &p.output)
		return -1
	}
}
