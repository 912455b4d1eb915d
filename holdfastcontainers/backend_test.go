package holdfastcontainers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastcontainers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two clients of one backend exclude each other, and code under test finds its own database.
func TestMongo(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members, " members"), func(t *testing.T) {
			t.Parallel()
			m := holdfastcontainers.Mongo(t, holdfastcontainers.WithMembers(members))
			if len(m.Hosts) != members {
				t.Fatalf("the members are %v", m.Hosts)
			}
			first, second := m.Client(), m.Client()
			err := first.Do(t.Context(), "billing", func(ctx context.Context) error {
				if _, err := second.TryLock(ctx, "billing"); !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("the second client: %v, want ErrHeld", err)
				}
				n, err := m.Database().Collection("holdfast_locks").CountDocuments(ctx, bson.D{})
				if err != nil || n != 1 {
					t.Errorf("the database of the test has %d locks (%v)", n, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			other := holdfastcontainers.Mongo(t, holdfastcontainers.WithMembers(members))
			if other.URI != m.URI || other.URL == m.URL {
				t.Errorf("another call returned %s and %s after %s and %s", other.URI, other.URL, m.URI, m.URL)
			}
		})
	}
}

func TestAzurite(t *testing.T) {
	t.Parallel()
	a := holdfastcontainers.Azurite(t)
	client := a.Client(holdfast.WithTTL(15 * time.Second))
	err := client.Do(t.Context(), "billing", func(ctx context.Context) error {
		_, err := a.Container().GetProperties(ctx, nil)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if other := holdfastcontainers.Azurite(t); other.Endpoint != a.Endpoint || other.URL == a.URL {
		t.Errorf("another call returned %s and %s after %s and %s", other.Endpoint, other.URL, a.Endpoint, a.URL)
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	p := holdfastcontainers.Postgres(t)
	first, second := p.Client(), p.Client()
	err := first.Do(t.Context(), "billing", func(ctx context.Context) error {
		if _, err := second.TryLock(ctx, "billing"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the second client: %v, want ErrHeld", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if other := holdfastcontainers.Postgres(t); other.Host != p.Host || other.URL == p.URL {
		t.Errorf("another call returned the host %s after %s, or the same database", other.Host, p.Host)
	}
}

const asChild = "HOLDFASTCONTAINERS_TEST_CHILD" // the idle limit

// TestChild is what another test process does: it prints the address of the backend, and waits for
// the end of its input.
func TestChild(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv(asChild))
	if err != nil {
		return // only a child
	}
	m := holdfastcontainers.Mongo(t, holdfastcontainers.WithIdle(limit))
	fmt.Printf("backend %s\n", m.Hosts[0])
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// child is another test process.
type child struct {
	cmd *exec.Cmd
	out *bytes.Buffer
	end func()
}

// startChild starts a process and returns when it uses the backend. Each test has an idle limit, and
// so a backend, of its own.
func startChild(t *testing.T, idle time.Duration) (c child, host string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(os.Environ(), asChild+"="+idle.String())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	c = child{cmd: cmd, out: &bytes.Buffer{}, end: func() { _ = stdin.Close() }}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = read.Close()
		if cmd.ProcessState == nil { // its backend may be gone: it would wait for it at its end
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for buffer := make([]byte, 1000); ; {
		n, err := read.Read(buffer)
		c.out.Write(buffer[:n])
		if _, after, ok := strings.Cut(c.out.String(), "backend "); ok && strings.Contains(after, "\n") {
			host, _, _ = strings.Cut(after, "\n")
			return c, host
		}
		if err != nil {
			t.Fatalf("the child ended: %s", c.out)
		}
	}
}

func accepts(host string) bool {
	conn, err := net.DialTimeout("tcp", host, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// awaitRemoval waits until a container does not exist.
func awaitRemoval(t *testing.T, containers []string) {
	t.Helper()
	docker, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = docker.Close() }()
	if len(containers) == 0 {
		t.Fatal("the keeper has no container")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		_, err := docker.ContainerInspect(t.Context(), containers[0], client.ContainerInspectOptions{})
		if err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the container was not removed")
		}
	}
}

// Test processes at the same time, and soon after each other, use one container. When none has used
// it for some time, it is removed, also if the last one was killed.
func TestProcessesShareAContainer(t *testing.T) {
	t.Parallel()
	const idle = 1500 * time.Millisecond
	first, host := startChild(t, idle)
	second, same := startChild(t, idle)
	if same != host {
		t.Fatalf("the second process uses %s, the first one %s", same, host)
	}
	_, containers := holdfastcontainers.Keeper("mongo", holdfastcontainers.WithIdle(idle))
	first.end()
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, first.out)
	}
	time.Sleep(2 * idle)
	if !accepts(host) {
		t.Fatal("the backend was removed while a process used it")
	}
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	third, same := startChild(t, idle)
	if same != host {
		t.Errorf("the third process uses %s, the first one %s", same, host)
	}
	if err := third.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitRemoval(t, containers)
}

// After the death of a keeper, the next process starts another backend and removes what the keeper
// left.
func TestKeeperKilled(t *testing.T) {
	t.Parallel()
	const idle = 1600 * time.Millisecond
	_, host := startChild(t, idle)
	pid, containers := holdfastcontainers.Keeper("mongo", holdfastcontainers.WithIdle(idle))
	keeper, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Kill(); err != nil {
		t.Fatal(err)
	}
	_, other := startChild(t, idle)
	if other == host {
		t.Errorf("the next process uses %s, which nobody keeps", other)
	}
	awaitRemoval(t, containers)
}

// A backend that somebody has removed is started again.
func TestContainerRemoved(t *testing.T) {
	t.Parallel()
	const idle = 1700 * time.Millisecond
	_, host := startChild(t, idle)
	_, containers := holdfastcontainers.Keeper("mongo", holdfastcontainers.WithIdle(idle))
	docker, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = docker.Close() }()
	if _, err := docker.ContainerRemove(t.Context(), containers[0], client.ContainerRemoveOptions{Force: true,
		RemoveVolumes: true}); err != nil {
		t.Fatal(err)
	}
	if _, other := startChild(t, idle); other == host || !accepts(other) {
		t.Errorf("the next process uses %s after %s", other, host)
	}
}

// recorder is a test whose end is expected.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns how a test ends that must fail.
func failure(t *testing.T, test func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(r) {
				panic(got)
			}
		}()
		test(r)
		t.Error("the test did not fail")
	}()
	return r.failure
}

// A nil option ends the test with a message, without a panic.
func TestNilOption(t *testing.T) {
	for kind, start := range map[string]func(tb testing.TB){
		"mongo":    func(tb testing.TB) { holdfastcontainers.Mongo(tb, nil) },
		"azurite":  func(tb testing.TB) { holdfastcontainers.Azurite(tb, nil) },
		"postgres": func(tb testing.TB) { holdfastcontainers.Postgres(tb, nil) },
	} {
		if got, want := failure(t, start), "holdfastcontainers: "+kind+" with a nil option: want an Option"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	for want, test := range map[string]func(tb testing.TB){
		"want an image, and 1 to 7 members": func(tb testing.TB) { holdfastcontainers.Mongo(tb, holdfastcontainers.WithMembers(0)) },
		"want an image, and no option":      func(tb testing.TB) { holdfastcontainers.Azurite(tb, holdfastcontainers.WithMembers(3)) },
		"Postgres with image": func(tb testing.TB) {
			holdfastcontainers.Postgres(tb, holdfastcontainers.WithImage(""))
		},
		"holdfast-local/does-not-exist:1": func(tb testing.TB) {
			holdfastcontainers.Mongo(tb, holdfastcontainers.WithImage("holdfast-local/does-not-exist:1"))
		},
	} {
		if got := failure(t, test); !strings.HasPrefix(got, "holdfastcontainers: ") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
