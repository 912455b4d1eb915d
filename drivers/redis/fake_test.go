package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServer answers each request, which it gets in small letters, with what answer returns. If that is empty, it does not answer.
func fakeServer(t *testing.T, answer func(own string, words []string) string) (addr string) {
	t.Helper()
	return fakeStore(t, func(own string, words []string) string {
		for i, word := range words {
			words[i] = strings.ToLower(strings.TrimSpace(word))
		}
		return answer(own, words)
	})
}

// fakeStore is fakeServer with requests as they were sent.
func fakeStore(t *testing.T, answer func(own string, words []string) string) (addr string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			work.Go(func() {
				for r := bufio.NewReader(conn); ; {
					words, err := readRequest(r)
					if err != nil {
						return
					}
					_, _ = io.WriteString(conn, answer(listener.Addr().String(), words))
				}
			})
		}
	})
	return listener.Addr().String()
}

func readRequest(r *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

// fakeNode is a server of a cluster that knows one primary and no replicas, and has no values. answer returns what it answers about the
// layout.
func fakeNode(t *testing.T, answer func(own string) string) (addr string) {
	t.Helper()
	return fakeServer(t, func(own string, words []string) string {
		if words[0] == "get" {
			return "$-1\r\n"
		}
		switch strings.Join(words, " ") {
		case "time":
			return "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
		case "ping":
			return "+PONG\r\n"
		case "cluster slots":
			return answer(own)
		case "cluster nodes":
			const text = "a :1@2 master - 0 0 1 connected 0-16383\n"
			return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
		return "-ERR unknown command\r\n"
	})
}

// fakeShard is a primary that keeps values, with a clock of its own. layout is what it answers about the layout.
type fakeShard struct {
	layout func(own string) string
	skew   time.Duration
	mu     sync.Mutex
	values map[string]string
	gets   int
}

func (f *fakeShard) answer(own string, words []string) string {
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	now := time.Now().Add(f.skew)
	at := bulk(strconv.FormatInt(now.Unix(), 10)) + bulk(strconv.Itoa(now.Nanosecond()/1000))
	f.mu.Lock()
	defer f.mu.Unlock()
	switch words[0] {
	case "cluster":
		if words[1] == "slots" {
			return f.layout(own)
		}
		return bulk("")
	case "time":
		return "*2\r\n" + at
	case "get":
		f.gets++
		if value, is := f.values[words[1]]; is {
			return bulk(value)
		}
		return "$-1\r\n"
	case "evalsha":
		key, version, value := words[3], words[4], words[5]
		if old, is := f.values[key]; is && versionOf(old) != version {
			return "*3\r\n" + at + bulk(old)
		}
		f.values[key] = value
		return "*2\r\n" + at
	}
	return "-ERR unknown command\r\n"
}

// ownedBy is the answer that a primary has the first n slots.
func ownedBy(addr string, n int) string {
	host, port, _ := strings.Cut(addr, ":")
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\na\r\n", n-1, len(host), host, port)
}

// ownedByAll is the answer that several primaries have slots.
func ownedByAll(addrs ...string) string {
	answer := fmt.Sprintf("*%d\r\n", len(addrs))
	for _, addr := range addrs {
		answer += strings.TrimPrefix(ownedBy(addr, slots), "*1\r\n")
	}
	return answer
}
