package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/holdfast-go/holdfast"
)

const ttl = 3 * time.Second

const folderVariable, redisVariable = "HOLDFAST_ASYNQ_FOLDER", "HOLDFAST_ASYNQ_REDIS"

func TestMain(m *testing.M) {
	folder := os.Getenv(folderVariable)
	if folder == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, "file:"+filepath.ToSlash(folder), os.Getenv(redisVariable), time.Second, holdfast.WithTTL(ttl)); err != nil {
		log.Fatal(err)
	}
}

// startRedis starts a Redis server, or a stand-in where none is installed, and returns its
// address.
func startRedis(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Log("no redis-server is installed; miniredis stands in for it")
		server := miniredis.RunT(t)
		ctx := t.Context()
		go func() { // its keys expire only when it is told that time has passed
			for begin := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				server.FastForward(time.Since(begin))
				begin = time.Now()
			}
		}()
		return server.Addr()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for range 1000 {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return address
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the Redis server does not answer")
	return ""
}

// enqueued is one task that an instance has put into the queue.
type enqueued struct {
	process int
	token   uint64
	at      time.Time
}

// instances collects what the processes print.
type instances struct {
	mu        sync.Mutex
	enqueued  []enqueued
	worked    int
	processes map[int]*exec.Cmd
}

func (in *instances) start(t *testing.T, folder, redis string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), folderVariable+"="+folder, redisVariable+"="+redis)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.processes[cmd.Process.Pid] = cmd
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e enqueued
			in.mu.Lock()
			if n, _ := fmt.Sscanf(lines.Text(), "%d enqueued under token %d: <nil>", &e.process, &e.token); n == 2 {
				e.at = time.Now()
				in.enqueued = append(in.enqueued, e)
			} else if n == 1 {
				in.worked++
			}
			in.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-read; _ = cmd.Wait() })
}

// await waits for a task for which the condition is true.
func (in *instances) await(t *testing.T, what string, condition func(e enqueued) bool) enqueued {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		in.mu.Lock()
		for _, e := range in.enqueued {
			if condition(e) {
				in.mu.Unlock()
				return e
			}
		}
		in.mu.Unlock()
	}
	t.Fatalf("not within a minute: %s", what)
	return enqueued{}
}

// One instance enqueues. When it is killed, or stopped, another does, and never two at a time.
func TestInstances(t *testing.T) {
	folder, redis := t.TempDir(), startRedis(t)
	in := &instances{processes: map[int]*exec.Cmd{}}
	for range 3 {
		in.start(t, folder, redis)
	}
	first := in.await(t, "a task", func(enqueued) bool { return true })
	time.Sleep(2 * ttl) // the lease is renewed
	if err := in.processes[first.process].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second := in.await(t, "a task of another instance", func(e enqueued) bool { return e.token > first.token })
	if err := in.processes[second.process].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	third := in.await(t, "a task of the third instance", func(e enqueued) bool { return e.token > second.token })
	if first.process == second.process || second.process == third.process || first.process == third.process {
		t.Errorf("the instances %d, %d and %d led", first.process, second.process, third.process)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, e := range in.enqueued[1:] {
		if e.token < in.enqueued[i].token {
			t.Errorf("%v came after %v", e, in.enqueued[i])
		}
	}
	if in.worked == 0 {
		t.Error("no instance worked")
	}
}
