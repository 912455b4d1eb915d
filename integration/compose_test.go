package integration

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/integration/env"
)

// The docker-compose.yml of the root folder is started on either backend, and the leader of its three
// workers is killed — another worker leads, under a higher token.
func TestCompose(t *testing.T) {
	t.Parallel()
	env.RequireContainers(t)
	for name, url := range map[string]string{
		"mongodb": "", // the default of docker-compose.yml
		"azblob":  "azblob://emulator/locks?endpoint=http://azurite:10000/devstoreaccount1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, url)
			p.compose("up", "-d")
			first := p.awaitStep(func(step) bool { return true })
			t.Logf("worker%d leads", first.worker)
			killed := time.Now()
			p.compose("kill", fmt.Sprintf("worker%d", first.worker))
			second := p.awaitStep(func(s step) bool { return s.worker != first.worker })
			t.Logf("worker%d leads, %s after worker%d was killed", second.worker, time.Since(killed).Round(100*time.Millisecond), first.worker)
			if second.token <= first.token {
				t.Errorf("token %d was granted after token %d", second.token, first.token)
			}
		})
	}
}

// project is the compose file, started under a unique project name.
type project struct {
	t       *testing.T
	command []string
	env     []string
}

func newProject(t *testing.T, url string) *project {
	t.Helper()
	p := &project{
		t: t, command: append(composeCommand(t), "-f", "../docker-compose.yml", "-p",
			"holdfast-"+strings.ToLower(rand.Text())),
		env: append(os.Environ(), "BACKEND_URL="+url,
			env.MongoImageVariable+"="+env.MongoImage(), env.AzuriteImageVariable+"="+env.AzuriteImage()),
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.cmd(context.Background(), "logs", "--no-color", "--tail", "30").CombinedOutput()
			t.Logf("%s", out)
		}
		p.run(context.Background(), "down", "-v", "--timeout", "0")
	})
	return p
}

func composeCommand(t *testing.T) []string {
	t.Helper()
	if exec.CommandContext(t.Context(), "docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	if _, err := exec.LookPath("docker-compose"); err != nil {
		t.Fatal("neither \"docker compose\" nor docker-compose is installed: install docker-compose")
	}
	return []string{"docker-compose"}
}

// Compose reads the compose file of the root folder and of each example. Each is valid, and one service alone builds the image: of two
// at the same time, the second fails on engines with containerd's image store. The programs are tested beside them.
func TestComposeFilesOfExamples(t *testing.T) {
	t.Parallel()
	env.RequireContainers(t)
	files := []string{"../docker-compose.yml"}
	for _, pattern := range []string{"../examples/*/docker-compose.yml", "../examples/libraries/*/docker-compose.yml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files were found (%v)", pattern, err)
		}
		files = append(files, found...)
	}
	command := composeCommand(t)
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), " build:\n") != 1 {
			t.Errorf("%s: not one service builds the image (%v)", file, err)
		}
		args := append(append([]string{}, command[1:]...), "-f", file, "config", "-q")
		if out, err := exec.CommandContext(t.Context(), command[0], args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

func (p *project) cmd(ctx context.Context, args ...string) *exec.Cmd {
	args = append(append([]string{}, p.command[1:]...), args...)
	cmd := exec.CommandContext(ctx, p.command[0], args...)
	cmd.Env = p.env
	return cmd
}

func (p *project) compose(args ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Minute) // building the worker takes a while
	defer cancel()
	p.run(ctx, args...)
}

func (p *project) run(ctx context.Context, args ...string) {
	p.t.Helper()
	if out, err := p.cmd(ctx, args...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s %s: %v\n%s", p.command[0], strings.Join(args, " "), err, out)
	}
}

// step is a line that a leading worker printed.
type step struct {
	worker int
	token  uint64
}

var stepLine = regexp.MustCompile(`^worker(\d)\D.*\| *step \d+ under token (\d+)`)

// awaitStep waits for a matching step. It reads the logs repeatedly instead of following them:
// docker-compose 1.29 stops following a container that was restarted.
func (p *project) awaitStep(wanted func(step) bool) step {
	p.t.Helper()
	var found step
	eventually(p.t, "a worker to lead", func() bool {
		out, err := p.cmd(p.t.Context(), "logs", "--no-color", "--tail", "5", "worker1", "worker2", "worker3").Output()
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(out)) {
			if s, ok := parseStep(line); ok && wanted(s) && s.token > found.token {
				found = s
			}
		}
		return found.token != 0
	})
	return found
}

func parseStep(line string) (s step, ok bool) {
	m := stepLine.FindStringSubmatch(line)
	if m == nil {
		return step{}, false
	}
	s.worker, _ = strconv.Atoi(m[1])
	s.token, _ = strconv.ParseUint(m[2], 10, 64)
	return s, true
}
