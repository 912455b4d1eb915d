//go:build unix

package main

import (
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

func TestUnreachable(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	runScripts(t, filepath.Join("testdata", "unreachable"), "", "HANGS="+hangs.Addr().String())
}

// A job that starts together with its database finds it.
func TestServerThatStartsLater(t *testing.T) {
	for name, backend := range map[string]func(t *testing.T) (url, host string){
		"mongodb": func(t *testing.T) (string, string) {
			at := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1}).URI() // the only member is the primary
			at = strings.Replace(at, "/?", "/holdfast_later?directConnection=true&", 1)
			return at, hostOf(t, at)
		},
		"postgres": func(t *testing.T) (string, string) {
			at := postgrestest.URL(t)
			return at, hostOf(t, at)
		},
		"azblob": func(t *testing.T) (string, string) {
			service := azuritetest.Shared(t)
			at, _, _ := strings.Cut(service.URL(service.Fresh(t)), "?")
			return at + "?endpoint=" + service.Endpoint, hostOf(t, service.Endpoint)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend, host := backend(t)
			late := bindOnly(t)
			_, out := locktest.NewLog()
			cmd := exec.Command("holdfast", "run", "--wait", "10m", "job", "--", "echo", "the command runs")
			cmd.Env = append(os.Environ(), "HOLDFAST_BACKEND="+strings.ReplaceAll(backend, host, late.address), "GORACE="+gorace)
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			out.Await(t, "trying") // to reach the backend, or again after a failure
			late.forwardTo(t, host)
			if err := <-ended; err != nil || !strings.Contains(out.String(), "the command runs") {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

func hostOf(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// lateServer has an address that refuses connections until it forwards them.
type lateServer struct {
	socket  *os.File
	address string
}

func bindOnly(t *testing.T) lateServer {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(socket)
	s := lateServer{socket: os.NewFile(uintptr(socket), "late server")}
	t.Cleanup(func() { _ = s.socket.Close() })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	s.address = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bound.(*syscall.SockaddrInet4).Port}).String()
	return s
}

// forwardTo begins to accept connections, and forwards them.
func (s lateServer) forwardTo(t *testing.T, target string) {
	t.Helper()
	if err := syscall.Listen(int(s.socket.Fd()), 100); err != nil {
		t.Fatal(err)
	}
	listener, err := net.FileListener(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // until either side ends
					_, _ = from.Close(), to.Close()
				}()
			}
		}
	}()
}
