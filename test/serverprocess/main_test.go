package serverprocess

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const envRole = "HOLDFAST_SERVERPROCESS_ROLE"

// TestMain runs the tests, or the program that the test process is started as.
func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "":
		Main(m)
	case "server":
		serve(os.Args[1], os.Args[2])
	case "broken server":
		fmt.Fprintln(os.Stderr, "unknown option")
		os.Exit(1)
	case "test process":
		server, err := StartOne(context.Background(), os.Args[1], program("server"))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(server.Addr())
		time.Sleep(time.Minute)
	}
}

// program is this test binary in another role.
func program(role string) Config {
	return Config{
		Name: role, Program: os.Args[0], Env: []string{envRole + "=" + role},
		Args: func(port, data string) []string { return []string{port, data} },
	}
}

// serve answers each connection with a text. An orderly stop leaves the file "stopped".
func serve(port, data string) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		_ = os.WriteFile(filepath.Join(data, "stopped"), nil, 0o600)
		os.Exit(0)
	}()
	l, err := net.Listen("tcp", net.JoinHostPort(Host, port))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			continue
		}
		_, _ = conn.Write([]byte("here"))
		_ = conn.Close()
	}
}
