//go:build unix

package electors

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

const (
	envKind, envAt, envName = "ELECTORS_KIND", "ELECTORS_AT", "ELECTORS_NAME"

	window = time.Minute      // in which requests are counted
	limit  = 90 * time.Second // for whatever is awaited
	lanes  = 3                // how often everything is measured, at the same time
)

// kinds are the programs that are measured. Each calls led when it has the Lease, and believes until it no longer thinks so.
var kinds = map[string]func(ctx context.Context, c cluster, name string, led func(), believes func(ctx context.Context)){
	"client-go": func(ctx context.Context, c cluster, name string, led func(), believes func(ctx context.Context)) {
		c.campaign(ctx, noTest{}, nil, name, fmt.Sprint("pid-", os.Getpid()), defaults, func(ctx context.Context) { led(); believes(ctx) })
	},
	"Holdfast":       holdfastWith(30 * time.Second),
	"Holdfast, 15 s": holdfastWith(15 * time.Second),
}

func holdfastWith(ttl time.Duration) func(context.Context, cluster, string, func(), func(context.Context)) {
	return func(ctx context.Context, c cluster, name string, led func(), believes func(ctx context.Context)) {
		hold, err := c.client(noTest{}, nil).Lock(ctx, name, holdfast.WithTTL(ttl))
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		led()
		believes(hold.Context())
	}
}

// noTest stands for the test in a child process.
type noTest struct{ testing.TB }

func (noTest) Helper()                  {}
func (noTest) Cleanup(func())           {}
func (noTest) Context() context.Context { return context.Background() }
func (noTest) Fatal(args ...any)        { fmt.Println(append([]any{"failed"}, args...)...); os.Exit(1) }

// child is the process of a program: it says when it leads, and the last moment at which it thought so.
func child(kind string) {
	c := clusterAt(noTest{}, os.Getenv(envAt))
	kinds[kind](context.Background(), c, os.Getenv(envName), func() { fmt.Println("led", time.Now().UnixNano()) }, func(ctx context.Context) {
		last := time.Now()
		for now := last; ctx.Err() == nil; now = time.Now() {
			last = now
			time.Sleep(time.Millisecond)
		}
		fmt.Println("stopped", last.UnixNano())
	})
	time.Sleep(time.Hour) // the parent process kills this one
}

// program is a child process, with a way to the API server of its own.
type program struct {
	cmd          *exec.Cmd
	led, stopped chan time.Time
	requests     atomic.Int64
	gone         atomic.Bool // the API server
}

// launch starts a program of a kind on a Lease.
func launch(b *testing.B, kind string, c cluster, name string) *program {
	b.Helper()
	p := &program{led: make(chan time.Time, 1), stopped: make(chan time.Time, 1)}
	config := c.configFor(b, nil)
	target, err := url.Parse(config.Host)
	if err != nil {
		b.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is on this machine
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	at := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.gone.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // else nobody notices that the connection is closed
			<-r.Context().Done()
			return
		}
		p.requests.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	at.Config.ErrorLog = log.New(io.Discard, "", 0)
	at.StartTLS()
	b.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	file := filepath.Join(b.TempDir(), "kubeconfig")
	text, err := os.ReadFile(c.kubeconfig)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.ReplaceAll(string(text), config.Host, at.URL)), 0o600)
	}
	self, err2 := os.Executable()
	if err != nil || err2 != nil {
		b.Fatal(err, err2)
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), envKind+"="+kind, envName+"="+name,
		envAt+"=kubernetes://"+c.namespace+"?kubeconfig="+file+"&prefix="+c.prefix)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.kill)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			nano, err := strconv.ParseInt(rest, 10, 64)
			switch {
			case err == nil && word == "led":
				p.led <- time.Unix(0, nano)
			case err == nil && word == "stopped":
				p.stopped <- time.Unix(0, nano)
			default:
				fmt.Fprintln(os.Stderr, kind, lines.Text())
			}
		}
	}()
	return p
}

func (p *program) kill() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() }

// signal sends a signal to the process.
func (p *program) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// await returns when something has happened; the zero Time if it has not.
func await(from <-chan time.Time) time.Time {
	select {
	case at := <-from:
		return at
	case <-time.After(limit):
		return time.Time{}
	}
}

// BenchmarkElectors prints one table.
func BenchmarkElectors(b *testing.B) {
	c := newCluster(b)
	settle(b, c)
	names := slices.Sorted(maps.Keys(kinds))
	columns := []string{"leader, requests/min", "follower, requests/min", "take-over after kill -9", "notice: cut off from the API server",
		"notice: another has the Lease", "both lead after a pause", "both lead after a cut"}
	var mu sync.Mutex
	got := map[string][]string{}
	add := func(kind, column string, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		got[kind+column] = append(got[kind+column], fmt.Sprintf(format, args...))
	}
	var all sync.WaitGroup
	for i, kind := range names {
		for lane := range lanes {
			all.Go(func() {
				measure(b, kind, c, fmt.Sprintf("lane-%d-%d", i, lane), columns, func(column, format string, args ...any) {
					add(kind, column, format, args...)
				})
			})
		}
	}
	all.Wait()
	fmt.Println("|", strings.Join(append([]string{""}, names...), " | "), "|")
	for _, column := range columns {
		fmt.Print("| ", column)
		for _, kind := range names {
			slices.Sort(got[kind+column])
			fmt.Print(" | ", strings.Join(got[kind+column], ", "))
		}
		fmt.Println(" |")
	}
}

// settle opens the store until it counts as trusted: on a young one, programs go on racing conditional writes.
func settle(b *testing.B, c cluster) {
	b.Helper()
	for range 50 {
		at := "kubernetes://" + c.namespace + "?kubeconfig=" + c.kubeconfig
		if c.prefix != "" {
			at += "&prefix=" + c.prefix
		}
		l, err := driver.Open(b.Context(), at)
		if err == nil {
			err = l.Close(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// measure measures one kind on one Lease: a leader and a follower, whatever happens to the leader.
func measure(b *testing.B, kind string, c cluster, name string, columns []string, add func(column, format string, args ...any)) {
	b.Helper()
	seconds := func(column string, from, to time.Time) {
		if from.IsZero() || to.IsZero() {
			add(column, "not within %v", limit)
			return
		}
		add(column, "%.2f s", to.Sub(from).Seconds())
	}
	// both says for how long the former leader thought that it led, from when another did.
	both := func(column string, led, last time.Time) {
		if led.IsZero() || last.IsZero() {
			add(column, "not within %v", limit)
			return
		}
		add(column, "%.0f ms", max(0, last.Sub(led).Seconds())*1000)
	}
	leader := launch(b, kind, c, name)
	await(leader.led)
	follower := launch(b, kind, c, name)
	time.Sleep(5 * time.Second) // until both have begun
	begin := [2]int64{leader.requests.Load(), follower.requests.Load()}
	time.Sleep(window)
	add(columns[0], "%.0f", float64(leader.requests.Load()-begin[0])/window.Minutes())
	add(columns[1], "%.0f", float64(follower.requests.Load()-begin[1])/window.Minutes())

	// The leader is paused until a moment after another leads.
	leader.signal(syscall.SIGSTOP)
	led := await(follower.led)
	time.Sleep(time.Second)
	leader.signal(syscall.SIGCONT)
	resumed := time.Now()
	both(columns[5], later(led, resumed), await(leader.stopped))
	leader.kill()

	leader, follower = follower, launch(b, kind, c, name)
	time.Sleep(time.Duration(5000+rand.IntN(10000)) * time.Millisecond) // at any time between two renewals
	killed := time.Now()
	leader.kill()
	seconds(columns[2], killed, await(follower.led))

	leader, follower = follower, launch(b, kind, c, name)
	time.Sleep(time.Duration(5000+rand.IntN(10000)) * time.Millisecond)
	cut := time.Now()
	leader.gone.Store(true)
	stopped := await(leader.stopped)
	seconds(columns[3], cut, stopped)
	both(columns[6], await(follower.led), stopped)
	leader.kill()

	time.Sleep(time.Duration(2000+rand.IntN(10000)) * time.Millisecond)
	robbed := time.Now()
	if err := rob(c, c.configFor(b, nil), name); err != nil {
		b.Error(err)
	}
	seconds(columns[4], robbed, await(follower.stopped))
	follower.kill()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rob writes another elector's fields into a Lease, as one does that has taken it over.
func rob(c cluster, config *rest.Config, name string) error {
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	_, err = client.Leases(c.namespace).Patch(context.Background(), c.prefix+name, types.MergePatchType, []byte(`{"spec": {"holderIdentity":
		"another", "leaseDurationSeconds": 3600, "acquireTime": "`+now+`", "renewTime": "`+now+`", "leaseTransitions": 1000}}`),
		metav1.PatchOptions{})
	return err
}
